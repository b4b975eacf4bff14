/** The promises of the view (DESIGN section 2, "the view", and section 4), against whatever can happen to it in any order. */
import t from 'tap'
import fc from 'fast-check'
import { limits } from '../src/core/limits.js'
import type { ValueName } from '../src/core/names.js'
import { Driver, askTimeoutMs } from './support/view-model/driver.js'
import { modules, names } from './support/view-model/mesh.js'
import { anything, orderly, outage, type Step } from './support/view-model/steps.js'

// VIEW_RUNS=50 makes fifty times as many runs, from another seed each time (with `npx tap --timeout=0`); VIEW_SEED repeats one.
const { VIEW_RUNS, VIEW_SEED } = process.env
const seed = VIEW_SEED !== undefined ? Number(VIEW_SEED) : VIEW_RUNS !== undefined ? Date.now() % 2 ** 31 : 20_260
const runs = (usual: number): { numRuns: number, seed: number } => ({ numRuns: Math.ceil(usual * Number(VIEW_RUNS ?? 1)), seed })

if (VIEW_RUNS !== undefined) t.setTimeout(0)
const patience = VIEW_RUNS === undefined ? {} : { timeout: 0 }

const drawn = (steps: fc.Arbitrary<Step[]>) => fc.record({ steps, seed: fc.nat() })

/** Nobody is there any more: no memory, and nobody is asked. */
async function expectNothingLeft (driver: Driver): Promise<void> {
  await driver.leave()
  await driver.pass(limits.unwatchedMs + askTimeoutMs + limits.probeAfterMs, 'all', 250)
  if (driver.view.size !== 0) throw new Error(`${driver.view.size} values stay in memory`)
  const asks = driver.ledger.asks
  await driver.pass(3 * limits.probeAfterMs, 'all', 250)
  if (driver.ledger.asks !== asks) throw new Error('an idle view asks')
}

t.test('whatever happens: never back, no doubles, never silently stale; and all converges when it ends', patience, async () => {
  await fc.assert(fc.asyncProperty(drawn(anything), async ({ steps, seed }) => {
    const driver = new Driver(seed)
    await driver.run(steps)
    await driver.heal()
    await driver.pass(driver.convergesMs + 2 * limits.viewTickMs, 'all')
    await driver.expectConverged()
    await expectNothingLeft(driver)
  }), runs(120))
})

t.test('no gap: where nothing fails each change is handed at once, or after the pause that a late answer costs; nobody is told stale', patience, async () => {
  await fc.assert(fc.asyncProperty(drawn(orderly), async ({ steps, seed }) => {
    const driver = new Driver(seed)
    await driver.run(steps)
    for (const client of driver.readers) client.readAgain()
    await driver.letThrough()
    await driver.pass(limits.reaskLaggingMs + limits.viewTickMs, 'all')
    await driver.expectConverged()
    if (driver.ledger.stales > 0) throw new Error('a watch was told that it is stale')
  }), runs(200))
})

t.test('quiet values cost the probe alone, and nobody is told anything', patience, async () => {
  await fc.assert(fc.asyncProperty(drawn(anything), fc.integer({ min: 1, max: 8 }), async ({ steps, seed }, silences) => {
    const driver = new Driver(seed)
    await driver.run(steps)
    await driver.heal()
    await driver.pass(driver.convergesMs + 2 * limits.viewTickMs, 'all')
    const { ledger: { asks }, frames } = driver
    await driver.pass(silences * limits.probeAfterMs, 'all')
    if (driver.ledger.asks - asks > silences) throw new Error(`${driver.ledger.asks - asks} asks in ${silences} times 5 s`)
    if (driver.frames !== frames) throw new Error('something was told though nothing moved')
  }), runs(30))
})

t.test('an outage: it is told in time, and all is current again a pause after it ends', patience, async () => {
  await fc.assert(fc.asyncProperty(outage, fc.nat(), async ({ begins, lasts, ends }, seed) => {
    const driver = new Driver(seed)
    await driver.run([
      ...names.map((_, value): Step => ({ do: 'watch', client: value % 3, value, keep: true })),
      { do: 'pass', ms: 1000, flow: 'all' },
      ...begins,
      ...lasts,
      ...ends
    ])
    for (const client of driver.readers) client.readAgain()
    await driver.pass(driver.convergesMs + limits.viewTickMs, 'all')
    await driver.expectConverged()
  }), runs(100))
})

const manyNames: ValueName[] = Array.from({ length: 150 }, (_, at) => ({ module: modules[at % 2] as string, kind: 'config', key: `key-${at}` }))

t.test('a flood of readers: one ask a value, 64 in flight; after a reconnect each watched value is asked once', patience, async () => {
  const readers = fc.array(fc.record({ client: fc.nat(2), value: fc.nat(manyNames.length - 1), watches: fc.boolean() }), { minLength: 50, maxLength: 400, size: 'max' })
  await fc.assert(fc.asyncProperty(readers, fc.nat(), fc.boolean(), async (readers, seed, failFirst) => {
    const driver = new Driver(seed, manyNames)
    const asked = (): number[] => manyNames.map((name) => driver.bus.countOf(name))
    await driver.run(readers.map(({ client, value, watches }): Step => watches
      ? { do: 'watch', client, value, keep: true }
      : { do: 'get', client, value, noCache: false }))
    await driver.letThrough()
    const wanted = new Set(readers.map(({ value }) => value))
    if (asked().some((count, at) => count !== (wanted.has(at) ? 1 : 0))) throw new Error(`asked ${asked().join(' ')}`)

    const before = asked()
    driver.bus.lose(driver.view, failFirst)
    await driver.pass(limits.viewTickMs, 'nothing')
    await driver.heal()
    await driver.letThrough()
    const watched = new Set(readers.filter(({ watches }) => watches).map(({ value }) => value))
    const again = asked().map((count, at) => count - (before[at] as number))
    if (again.some((count, at) => count !== (watched.has(at) ? 1 : 0))) throw new Error(`asked again ${again.join(' ')}`)
    if (driver.watches.some(({ live }) => !live)) throw new Error('a watch was not told that it is current again')
    if (driver.bus.most > limits.asksInFlight) throw new Error(`${driver.bus.most} asks were in flight`)
    await expectNothingLeft(driver)
  }), runs(15))
})

t.test('who asks before a value is answered shares its ask, however many; who wants it uncached shares the next', patience, async () => {
  await fc.assert(fc.asyncProperty(fc.array(fc.boolean(), { minLength: 1, maxLength: 60 }), fc.nat(), async (uncached, seed) => {
    const driver = new Driver(seed)
    await driver.run(uncached.map((noCache, at): Step => ({ do: 'get', client: at % 3, value: 0, noCache })))
    await driver.letThrough()
    const asks = driver.bus.countOf(names[0] as ValueName)
    const needed = uncached.slice(1).includes(true) ? 2 : 1
    if (asks !== needed) throw new Error(`${asks} asks where ${needed} are needed`)
  }), runs(100))
})
