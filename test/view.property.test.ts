/** The promises of the view (DESIGN section 2, "the view", and section 4), against whatever can happen to it in any order. */
import t from 'tap'
import fc from 'fast-check'
import { limits } from '../src/core/limits.js'
import { Driver, convergesMs } from './support/view-model/driver.js'
import { anything, orderly, type Step } from './support/view-model/steps.js'

/** VIEW_RUNS=5000 looks for longer, from another seed each time; VIEW_SEED repeats one. */
const { VIEW_RUNS, VIEW_SEED } = process.env
const seed = VIEW_SEED !== undefined ? Number(VIEW_SEED) : VIEW_RUNS !== undefined ? Date.now() % 2 ** 31 : 20_260
const runs = (usual: number): { numRuns: number, seed: number } => ({ numRuns: Math.ceil(usual * Number(VIEW_RUNS ?? 100) / 100), seed })

const drawn = (steps: fc.Arbitrary<Step[]>) => fc.record({ steps, seed: fc.nat() })

t.test('whatever happens: never back, no doubles, never silently stale; and all converges when it ends', async () => {
  await fc.assert(fc.asyncProperty(drawn(anything), async ({ steps, seed }) => {
    const driver = new Driver(seed)
    await driver.run(steps)
    await driver.heal()
    await driver.pass(convergesMs + 2000, 'all')
    await driver.expectConverged()
  }), runs(300))
})
