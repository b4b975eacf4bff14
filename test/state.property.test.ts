/** The words of the state against what a take-in does: over any inventory, without a bus (DESIGN sections 3 and 6). */
import t from 'tap'
import fc from 'fast-check'
import { bucketNames, type BucketName, type MakeCredential } from '../src/core/ports.js'
import { detailOf, summaryOf } from '../src/core/state/module-answer.js'
import { ModuleStates, type ModuleState } from '../src/core/state/module-state.js'
import { Picture } from '../src/core/state/picture.js'
import { StepFailed, type TakeInResult } from '../src/core/take-in/take.js'
import { TakeIns } from '../src/core/take-in/take-ins.js'
import { commitOf, fp } from './support/bus/buckets.js'
import { MemoryStore } from './support/memory-store.js'

// STATE_RUNS=50 makes fifty times as many runs, from another seed each time (with `npx tap --timeout=0`); STATE_SEED repeats one.
const { STATE_RUNS, STATE_SEED } = process.env
const seed = STATE_SEED !== undefined ? Number(STATE_SEED) : STATE_RUNS !== undefined ? Date.now() % 2 ** 31 : 20_260
const runs = (usual: number) => ({ numRuns: Math.ceil(usual * Number(STATE_RUNS ?? 1)), seed })
if (STATE_RUNS !== undefined) t.setTimeout(0)
const patience = STATE_RUNS === undefined ? {} : { timeout: 0 }

const modules = ['a', 'b', 'bus']
const nodes = ['n1', 'n2']
const curveOf = (digit: string): string => `X${digit.repeat(55)}`

let made = 0
const newUser: MakeCredential = (to) => {
  const name = [...String(made++)].map((digit) => 'ABCDEFGHIJ'[Number(digit)]).join('')
  return { user: `U${name.padStart(55, 'A')}`, sealed: 'sealed-away', by: curveOf('B'), to }
}

/** One thing that is written, or a take-in that is run. */
type Act = { bucket: BucketName, key: string, document?: unknown } | { take: string }

const pick = <T>(...of: T[]): fc.Arbitrary<T> => fc.constantFrom(...of)
const rubbish = 'no object at all'

function manifests (module: string): fc.Arbitrary<unknown> {
  const config = pick<object>({}, { port: { default: 1, schema: { type: 'integer' } } }, { port: { default: 'x' } }, { port: {} })
  return fc.record({
    config,
    bound: pick<object>({}, { url: {} }),
    offers: pick<object>({}, { url: 'one' }, { url: 'two', more: 1 }),
    permissions: pick<object>({}, { publish: [`${module}.>`] })
  }).map((drawn) => ({ module, ...drawn }))
}

const acts: fc.Arbitrary<Act> = pick(...modules).chain((module) => {
  const write = (bucket: BucketName, key: string, documents: fc.Arbitrary<unknown>): fc.Arbitrary<Act> =>
    documents.map((document) => ({ bucket, key, document }))
  const inventory = (key: string, ...documents: unknown[]) => write('inventory', key, pick(...documents))
  const digit = pick('a', 'b')
  const node = pick(...nodes)
  const weighed: Array<[number, fc.Arbitrary<Act>]> = [
    [6, fc.constant({ take: module })],
    [2, inventory(`module.${module}`, { module }, { module }, { module: 'a' }, undefined, rubbish)],
    [4, write('trunk', module, digit.map((one) => ({ fp: fp(one), commit: commitOf(one) })))],
    [1, write('trunk', module, pick<unknown>({ fp: 'fp1-old', commit: 'c' }, { fp: 'fp2-short', commit: 'c' }, undefined, rubbish))],
    [5, fc.tuple(digit, manifests(module)).chain(([one, manifest]) =>
      write('builds', `done.${module}.${fp(one)}`, pick<unknown>(...Array<unknown>(8).fill({ fp: fp(one), commit: commitOf(one), manifest }), rubbish)))],
    [2, fc.subarray(nodes).chain((of) => inventory(`assignment.${module}`, { nodes: of }))],
    [1, inventory(`assignment.${module}`, { nodes }, undefined, rubbish)],
    [2, write('settings', module, pick<unknown>({ port: 5 }, { port: 'five' }, { stray: 1 }, {}, undefined, rubbish))],
    [2, pick(...modules).chain((to) => inventory(`binding.${module}`,
      { url: { module: to, offer: 'url' } }, { url: { module: to, offer: 'none' } }, { other: { module: to, offer: 'url' } }, undefined, rubbish))],
    [3, node.chain((node) => inventory(`node.${node}`,
      ...Array<unknown>(2).fill({ node, curve: curveOf('C') }), { node, curve: curveOf('D') }, { node: 'n9', curve: curveOf('C') }, undefined))],
    [1, node.chain((node) => inventory('seat.broker',
      ...Array<unknown>(2).fill({ module: 'bus', node, servers: [] }), { module: 'a', node, servers: [] }, undefined, rubbish))],
    [1, node.chain((node) => write('compositions', `${node}.${module}`, pick<unknown>(undefined, rubbish)))],
    [1, digit.chain((one) => write('grants', `${module}.${fp(one)}`, pick<unknown>({ module, fp: fp(one), commit: commitOf(one), nodes: {} }, undefined, rubbish)))]
  ]
  return fc.oneof(...weighed.map(([weight, arbitrary]) => ({ weight, arbitrary })))
})

const filters: Record<BucketName, string> = {
  trunk: '*', builds: 'done.*.*', inventory: '*.*', settings: '*', compositions: '*.*', grants: '*.*', takeins: '*'
}

/** A mesh in memory, where each thing begins as it should be. */
class MeshInMemory {
  readonly store = new MemoryStore()
  readonly picture = new Picture()
  readonly states = new ModuleStates()
  readonly #takeIns = new TakeIns({
    store: () => this.store,
    brokers: { applied: async () => {} },
    makeCredential: newUser,
    patience: { now: Date.now, random: Math.random, pause: async () => {} },
    ended () {},
    trouble: (_, error) => { throw error }
  })

  constructor () { for (const bucket of bucketNames) this.picture.anew(bucket, 1) }

  async begin (): Promise<void> {
    for (const node of nodes) await this.store.put('inventory', `node.${node}`, { node, curve: curveOf('C') })
    for (const module of modules) {
      await this.store.put('inventory', `module.${module}`, { module })
      await this.store.put('inventory', `assignment.${module}`, { nodes })
      await this.store.put('trunk', module, { fp: fp('a'), commit: commitOf('a') })
      await this.store.put('builds', `done.${module}.${fp('a')}`, { fp: fp('a'), commit: commitOf('a'), manifest: { module, offers: { url: 'zero' } } })
    }
  }

  async do (act: Act): Promise<void> {
    if ('take' in act) await this.take(act.take)
    else if (act.document !== undefined) await this.store.put(act.bucket, act.key, act.document)
    else {
      const stands = await this.store.read(act.bucket, act.key)
      if (stands) await this.store.purge(act.bucket, act.key, stands.revision)
    }
  }

  /** What it ended as, and how much it wrote besides a record. */
  async take (module: string): Promise<{ outcome: TakeInResult['outcome'] | 'step-failed', step?: string, writes: string[] }> {
    const before = this.store.writes.length
    const ended = await this.#takeIns.run(module, 'test').then(({ outcome }) => ({ outcome }), (error: unknown) => {
      if (error instanceof StepFailed) return { outcome: 'step-failed' as const, step: error.step }
      throw error
    })
    return { ...ended, writes: this.store.writes.slice(before).filter(({ bucket }) => bucket !== 'takeins').map(({ bucket, key }) => `${bucket} ${key}`) }
  }

  /** As followers would have told it by now. */
  async look (): Promise<Map<string, ModuleState>> {
    for (const bucket of bucketNames) {
      for (const [key, entry] of await this.store.readAll(bucket, filters[bucket])) {
        if (this.picture.get(bucket, key)?.revision !== entry.revision) this.picture.entry(bucket, entry)
      }
    }
    return this.states.all(this.picture)
  }
}

t.test('a bucket that was made anew is forgotten, and what moved alone is looked at again', async (t) => {
  const mesh = new MeshInMemory()
  await mesh.begin()
  for (const module of modules) await mesh.take(module)
  const before = await mesh.look()
  t.same([...before.values()].map(({ where }) => where), ['current', 'current', 'current'])
  await mesh.store.put('settings', 'b', {})
  const after = await mesh.look()
  t.equal(after.get('a'), before.get('a'), 'the same object')
  t.not(after.get('b'), before.get('b'))
  const { characters } = mesh.picture
  mesh.picture.anew('compositions', 2)
  t.ok(mesh.picture.characters < characters)
  t.match(mesh.states.all(mesh.picture).get('a'), { where: 'behind', nodes: [{ composition: null }, { composition: null }] })
  for (const bucket of bucketNames) mesh.picture.anew(bucket, 2)
  t.equal(mesh.picture.characters, 0)
  t.equal(mesh.states.all(mesh.picture).size, 0)
})

/** The words that a take-in may leave behind, by how it ended. */
const leaves: Record<string, Array<ModuleState['where']>> = {
  'taken-in': ['current'],
  composed: ['current'],
  current: ['current'],
  superseded: ['current'],
  unassigned: ['unassigned'],
  waiting: ['waiting'],
  'no-trunk': ['never-taken-in', 'current', 'unassigned'],
  'old-fingerprint': ['never-taken-in', 'current', 'unassigned'],
  'step-failed': ['failing']
}

t.test('a module is current or unassigned exactly where a take-in writes nothing, and after one it is what its outcome means', patience, async (t) => {
  const seen = new Map<string, number>()
  await fc.assert(fc.asyncProperty(fc.array(acts, { minLength: 3, maxLength: 25 }), pick(...modules), async (steps, module) => {
    const mesh = new MeshInMemory()
    await mesh.begin()
    for (const step of steps) await mesh.do(step)
    const before = (await mesh.look()).get(module)
    const taken = await mesh.take(module)
    const after = (await mesh.look()).get(module)
    const told = JSON.stringify({ before, taken, after }, undefined, 1)
    const isHeld = (await mesh.store.read('inventory', `module.${module}`))?.deleted === false
    if (isHeld !== (after?.held ?? false)) throw new Error(`whether it is held: ${told}`)
    if (!isHeld) {
      if (taken.outcome === 'removed' && after) throw new Error(`it was removed, and still stands: ${told}`)
      return
    }
    if (!before || !after) throw new Error(`it is not shown: ${told}`)
    for (const { where } of [before, after]) seen.set(where, (seen.get(where) ?? 0) + 1)
    const isSettled = before.where === 'current' || before.where === 'unassigned'
    if (isSettled && (taken.writes.length > 0 || taken.outcome === 'step-failed')) throw new Error(`it is ${before.where}, and a take-in wrote: ${told}`)
    if (before.where === 'behind' && taken.writes.length === 0 && taken.outcome !== 'step-failed') throw new Error(`it is behind, and a take-in wrote nothing: ${told}`)
    // A failure that took away what it failed by is over: the next take-in shows it.
    const shown = taken.outcome === 'step-failed' && after.where !== 'failing' ? await mesh.take(module) : taken
    if (!leaves[shown.outcome]?.includes(after.where) || (shown !== taken && shown.writes.length > 0)) throw new Error(`a take-in that ended as ${taken.outcome} left it ${after.where}: ${told}`)
    // What is remembered of the state is what a look from the start finds.
    const anew = new ModuleStates().all(mesh.picture).get(module)
    if (JSON.stringify(anew) !== JSON.stringify(after)) throw new Error(`another look: ${JSON.stringify(anew)}, ${told}`)
    const said = JSON.stringify([summaryOf(after), detailOf(mesh.picture, after)])
    if (said.includes('sealed-away')) throw new Error('a sealed credential is said')
  }), runs(400))
  for (const where of ['failing', 'waiting', 'never-taken-in', 'behind', 'unassigned', 'current']) t.ok((seen.get(where) ?? 0) > 5, `${where}: ${seen.get(where)} times`)
})
