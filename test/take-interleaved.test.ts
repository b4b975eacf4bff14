/** Runs that come between each other at every call, how many rounds of calls one takes, and the store of one plan: without a bus. */
import assert from 'node:assert/strict'
import t from 'tap'
import fc from 'fast-check'
import { Applied } from '../src/core/take-in/applied.js'
import { OnlyPlanned } from '../src/core/take-in/only-planned.js'
import { TakeIns } from '../src/core/take-in/take-ins.js'
import { StepFailed } from '../src/core/take-in/take.js'
import { MeshError } from '../src/core/errors.js'
import { commitOf, fp, sampleManifest } from './support/bus/buckets.js'
import { deeds, inMemory, isWhole, newUser, standingMesh, stateOf } from './support/memory-mesh.js'
import type { MemoryStore } from './support/memory-store.js'

const turn = () => new Promise<void>((resolve) => { setImmediate(resolve) })

/** A gateway in memory that takes in when it is told to. */
const manual = (store: MemoryStore): TakeIns => new TakeIns({
  store: () => store,
  brokers: { applied: async () => {} },
  makeCredential: newUser,
  patience: { now: Date.now, random: Math.random, pause: turn },
  ended () {},
  trouble: (_, error) => { throw error }
})

/** Lets the calls of a store through in rounds: all that were made since the last one, together. Counts the rounds. */
function inRounds (store: MemoryStore): { count: number } {
  const rounds = { count: 0 }
  let waiting: Array<() => void> = []
  store.pace = () => new Promise((resolve) => {
    if (waiting.length === 0) {
      setImmediate(() => {
        rounds.count++
        const all = waiting
        waiting = []
        for (const go of all) go()
      })
    }
    waiting.push(resolve)
  })
  return rounds
}

t.test('a take-in of a new build is a dozen rounds of calls', async (t) => {
  for (const seat of [true, false]) {
    const store = await standingMesh()
    if (!seat) await store.purge('inventory', 'seat.broker', (await store.read('inventory', 'seat.broker'))?.revision ?? 0)
    const gateway = manual(store)
    for (const module of ['bus', 'm1', 'm2']) await gateway.run(module, 'x')
    const build = async (digit: string, more: object = {}) => {
      await store.put('builds', `done.m1.${fp(digit)}`, { fp: fp(digit), commit: commitOf(digit), manifest: sampleManifest('m1', more) })
      await store.put('trunk', 'm1', { fp: fp(digit), commit: commitOf(digit) })
    }
    const rounds = inRounds(store)
    const taken = async (most: number, what: string) => {
      rounds.count = 0
      t.match(await gateway.run('m1', 'x'), { outcome: 'taken-in' })
      t.ok(rounds.count <= most, `${what}: ${rounds.count} rounds${seat ? ', with a broker' : ''}`)
    }
    await build('b', { permissions: { publish: ['orders.>'] } })
    await taken(9, 'a new build')
    await build('c', { permissions: { publish: ['other.>'] } })
    await taken(13, 'a new build with other rights')
    rounds.count = 0
    t.match(await gateway.run('m1', 'x'), { outcome: 'current' })
    await gateway.run('m1', 'x')
    t.ok(rounds.count <= 2 * 6, `nothing to do, twice: ${rounds.count} rounds`)
  }
})

t.test('runs that come between each other at every call never put older over newer: when all have ended, one more writes nothing', async (t) => {
  const deed = fc.constantFrom(...Object.keys(deeds)).map((deed) => ({ deed }))
  const begin = fc.record({ gateway: fc.nat(2), module: fc.constantFrom('m1', 'm1', 'm2') })
  const pauses = fc.array(fc.nat(5), { minLength: 80, maxLength: 80 })
  const script = fc.array(fc.oneof(deed, begin), { minLength: 2, maxLength: 8 })
  await t.resolves(fc.assert(fc.asyncProperty(script, fc.nat(2), pauses, async (actions, last, turns) => {
    const store = await standingMesh()
    const gateways = [0, 1, 2].map(() => inMemory(store))
    for (const module of ['bus', 'm1', 'm2']) await inMemory(store).take(module)
    let at = 0
    store.pace = async () => { for (let n = turns[at++ % turns.length] ?? 0; n > 0; n--) await turn() }
    const going: Array<Promise<unknown>> = []
    const run = (gateway: number, module: string) => {
      going.push((gateways[gateway] ?? inMemory(store)).take(module).catch((error: unknown) => { if (!(error instanceof StepFailed)) throw error }))
    }
    for (const one of actions) {
      if ('deed' in one) await deeds[one.deed]?.(store)
      else run(one.gateway, one.module)
      for (let n = 6; n > 0; n--) await store.pace()
    }
    // Begins after the last write, while the others may still be under way.
    run(last, 'm1')
    await Promise.all(going)
    store.pace = undefined
    const stood = await stateOf(store)
    const writes = store.writes.length
    await inMemory(store).take('m1')
    assert.deepEqual(store.writes.slice(writes).map(({ bucket, key }) => `${bucket} ${key}`), [])
    const fresh = await standingMesh()
    for (const one of actions) if ('deed' in one) await deeds[one.deed]?.(fresh)
    for (const module of ['bus', 'm1', 'm2', 'm1']) await inMemory(fresh).take(module)
    assert.deepEqual(stood, await stateOf(fresh))
    assert.deepEqual(await isWhole(store), [])
  }), { numRuns: 150 }))
})

t.test('a run that keeps to a plan stops at the first write that is not in it, and says what differs and what was done', async (t) => {
  const store = await standingMesh()
  const gateway = manual(store)
  await gateway.run('bus', 'x')
  const refusal = async (ifMatch: (etag: string) => boolean) => {
    const error: unknown = await gateway.run('m1', 'alice', { ifMatch }).catch((error: unknown) => error)
    if (!(error instanceof MeshError)) throw error
    return error
  }
  /** Once the run has begun to do something: whatever its plan was made from is another then. */
  const meanwhile = (bucket: 'inventory' | 'compositions', what: () => void) => {
    store.fault = (writing, when) => {
      if (writing.bucket !== bucket || when !== 'after') return
      store.fault = undefined
      what()
    }
  }
  const plan = await gateway.plan('m1')
  meanwhile('inventory', () => { void store.put('settings', 'm1', { port: 1 }) })
  const writes = store.writes.length
  const carriedOut = await refusal((etag) => etag === plan?.etag)
  t.match(carriedOut, {
    problem: 'plan-changed',
    status: 412,
    members: { registered: true, composed: ['node-a', 'node-b', 'node-c'], differs: { bucket: 'compositions', why: 'another text than planned' }, plan: { outcome: 'composed' } }
  }, 'what is seen to have moved at the end is not written')
  t.equal(store.writes.slice(writes).filter(({ bucket, key }) => bucket === 'compositions' && key === 'node-a.m1').length, 1)
  t.match(await store.document('compositions', 'node-a.m1'), { config: { port: 8080 } })
  t.match(await store.document('takeins', 'm1'), { outcome: 'step-failed', by: ['alice'] }, 'the record says that something was done')

  t.match(await gateway.run('m1', 'alice', { ifMatch: (etag) => etag === (carriedOut.members.etag as string) }), { outcome: 'composed' }, 'the new plan can be carried out')
  await store.put('settings', 'm1', { port: 2 })
  const second = await gateway.plan('m1')
  meanwhile('compositions', () => { void store.put('inventory', 'assignment.m1', { nodes: ['node-b'] }) })
  t.match(await refusal((etag) => etag === second?.etag), { members: { differs: { bucket: 'compositions', key: 'node-a.m1' }, registered: false } })
  t.ok(await store.document('compositions', 'node-a.m1'), 'a removal that was not planned is not made')
  t.match(await refusal(() => false), { problem: 'plan-changed', members: { plan: { outcome: 'composed' } } }, 'and one that names another plan does nothing')

  // Somebody who asks for whatever is to be done makes it an ordinary run: what is not in the plan is written as well. The two share the
  // run after the first one, which has something to do since a setting is written when the first is through with its compositions.
  meanwhile('compositions', () => {
    void store.put('settings', 'm1', { port: 3 })
    meanwhile('compositions', () => { void store.put('settings', 'm1', { port: 4 }) })
  })
  const all = await Promise.all([gateway.run('m1', 'first'), gateway.run('m1', 'alice', { ifMatch: () => true }), gateway.run('m1', 'bob')])
  t.ok(all.every(({ outcome }) => ['composed', 'current'].includes(outcome)))
  t.match(await store.document('compositions', 'node-b.m1'), { config: { port: 4 } })
  // However many name plans that are old, and whoever came last.
  const many = await Promise.allSettled([gateway.run('m1', 'first'), ...Array.from({ length: 30 }, () => gateway.run('m1', 'alice', { ifMatch: () => false })), gateway.run('m1', 'bob')])
  t.match(many.at(-1), { status: 'fulfilled', value: { outcome: 'current' } })
  t.ok(many.slice(1, -1).every((one) => one.status === 'rejected' && (one.reason as MeshError).problem === 'plan-changed'))
})

t.test('the store of a plan takes its writes, whatever the credentials and revisions, and then no other', async (t) => {
  const memory = await standingMesh()
  const composition = (user: string, port: number) => JSON.stringify({ module: 'm1', config: { port }, credential: { user }, users: [{ module: 'm1', users: [{ node: 'n', user }] }] })
  const grant = (revision: string) => JSON.stringify({ fp: 'x', nodes: { n: revision } })
  const planned = [
    { bucket: 'compositions' as const, key: 'n.m1', before: undefined, text: composition('U1', 1) },
    { bucket: 'grants' as const, key: 'm1.x', before: undefined, text: grant('1.1') },
    { bucket: 'grants' as const, key: 'm1.y', before: undefined, text: undefined }
  ]
  const only = new OnlyPlanned(planned)
  const store = only.around(memory)
  const first = await store.write('compositions', 'n.m1', composition('U2', 1), 0)
  await store.write('grants', 'm1.x', grant('1.7'), 0)
  await store.purge('grants', 'm1.y', 0)
  t.equal(only.refused, undefined)
  await t.rejects(store.write('compositions', 'n.m1', composition('U2', 2), first), /another text than planned/)
  await t.rejects(store.write('grants', 'm1.x', grant('1.7'), 0), /another text than planned/, 'nothing more is taken')
  t.match(only.refused, { bucket: 'compositions', key: 'n.m1' })
  await store.write('takeins', 'm1', '{}', 0)
  await t.rejects(new OnlyPlanned(planned).around(memory).purge('compositions', 'n.m1', first), /another text/)
  await t.rejects(new OnlyPlanned(planned).around(memory).write('inventory', 'module.m1', '{}', 0), /not in the plan/)
})

t.test('what a server runs with is asked once, by all who want to know, and again after each doubt', async (t) => {
  const asked: string[] = []
  let says: Promise<void> = Promise.resolve()
  const applied = new Applied({ applied: async (server, { revision }) => { asked.push(`${server} ${revision}`); return says } })
  const at = (revision: number, epoch = 1) => ({ epoch, revision })
  t.notOk(applied.has('s1', at(1)), 'nothing is known at the start')
  await Promise.all([applied.ask('s1', at(5)), applied.ask('s1', at(5)), applied.ask('s1', at(4))])
  t.same(asked, ['s1 5'])
  t.ok(applied.has('s1', at(5)) && applied.has('s1', at(4)))
  t.notOk(applied.has('s1', at(6)) || applied.has('s2', at(5)) || applied.has('s1', at(1, 2)))
  applied.same(at(4), at(7))
  t.ok(applied.has('s1', at(7)), 'the same users at a later revision')
  applied.same(at(8), at(9))
  t.notOk(applied.has('s1', at(9)))
  says = Promise.reject(new Error('line 7'))
  await t.rejects(applied.ask('s1', at(7)), /line 7/)
  t.notOk(applied.has('s1', at(5)), 'what failed is asked again, whatever it said before')
})
