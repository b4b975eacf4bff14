/** The order of a take-in, who shares a run, what is tried again, who is woken: all without a bus. */
import assert from 'node:assert/strict'
import t from 'tap'
import fc from 'fast-check'
import { again } from '../src/core/take-in/again.js'
import { OwnWrites, telling } from '../src/core/take-in/own-writes.js'
import { Shared } from '../src/core/take-in/shared.js'
import { TakeIns } from '../src/core/take-in/take-ins.js'
import { StepFailed, stepNames, take, type Composed, type Granted, type NodesOf, type StepDone, type StepName, type Steps } from '../src/core/take-in/take.js'
import { Wakes } from '../src/core/take-in/wakes.js'
import { BadDocument, Conflict, Transient } from '../src/core/errors.js'
import { limits } from '../src/core/limits.js'
import type { BucketName } from '../src/core/ports.js'
import { commitOf, fp, sampleManifest } from './support/bus/buckets.js'
import { curve, deeds, inMemory, isWhole, newUser, standingMesh, stateOf, ticking } from './support/memory-mesh.js'
import { MemoryStore } from './support/memory-store.js'

const trunkA = { fp: fp('a'), commit: commitOf('a') }
const trunkB = { fp: fp('b'), commit: commitOf('b') }
const atA = { fp: trunkA.fp, commit: trunkA.commit }
const atB = { fp: trunkB.fp, commit: trunkB.commit }
const onTwo: NodesOf = { assignment: 'stands', assigned: ['node-a', 'node-b'], left: [] }
const nothingDone: Granted = { granted: false, deleted: 0, moved: false }
const granted: Granted = { ...nothingDone, granted: true }

/** Steps that answer as told and keep what they were called with, in the order of the calls. */
function standIns (more: Partial<Steps> = {}) {
  const calls: Array<[StepName, ...unknown[]]> = []
  const told: Steps = {
    held: async () => 'held',
    trunk: async () => trunkA,
    registeredAt: async () => false,
    takeIn: async () => 'registered',
    nodesOf: async () => onTwo,
    compose: async () => ({ at: atA, written: ['node-a', 'node-b'] }),
    busHolder: async () => ({ written: 'node-c' }),
    grants: async () => granted,
    ...more
  }
  const kept = Object.entries(told).map(([name, step]) => [name, (module: string, ...rest: unknown[]) => {
    calls.push([name as StepName, ...rest])
    return (step as (...given: unknown[]) => unknown)(module, ...rest)
  }])
  return { calls, names: () => calls.map(([name]) => name), steps: Object.fromEntries(kept) as Steps }
}

/** A turn of the event loop. */
const turn = () => new Promise<void>((resolve) => { setImmediate(resolve) })

const run = (more: Partial<Steps> = {}) => take('m1', standIns(more).steps, { now: ticking() })
const stepsOf = (steps: StepDone[]): string[] => steps.map(({ step }) => step)

t.test('the steps run in the order of the contract, each on what those before it found', async (t) => {
  const { steps, calls } = standIns()
  const told: StepDone[] = []
  const result = await take('m1', steps, { now: ticking(), progress: (step) => told.push(step) })
  const composed: Composed = { at: atA, written: ['node-a', 'node-b'] }
  t.same(calls, [
    ['held'], ['trunk'], ['registeredAt', trunkA], ['takeIn', trunkA], ['nodesOf'], ['compose', onTwo], ['busHolder', onTwo, composed], ['grants', onTwo, atA]
  ])
  t.same(result, {
    outcome: 'taken-in',
    module: 'm1',
    ...atA,
    registered: true,
    composed: ['node-a', 'node-b', 'node-c'],
    grant: true,
    said: 'm1 at fp2-aaaaaaaa: registered from the build of fp2-aaaaaaaa (aaaaaaaa); composed node-a, node-b, node-c; granted',
    steps: stepNames.map((step) => ({ step, ms: 1 }))
  })
  t.same(told, result.steps, 'and each is told as it ends')
})

t.test('each way to end has its own name and its own fields', async (t) => {
  const nothing: Partial<Steps> = {
    compose: async () => ({ at: atA, written: [] }),
    busHolder: async () => ({ written: undefined }),
    grants: async () => nothingDone
  }
  const registered = { registeredAt: async () => true }
  const noNodes = (assignment: NodesOf['assignment'], left: string[] = []) =>
    ({ ...registered, ...nothing, nodesOf: async () => ({ assignment, assigned: [], left }) })
  const upTo = (last: StepName) => stepNames.slice(0, stepNames.indexOf(last) + 1)
  const without = (...left: StepName[]) => stepNames.filter((name) => !left.includes(name))
  const table: Array<[string, Partial<Steps>, object, readonly StepName[]]> = [
    ['not held', { held: async () => 'absent' }, { outcome: 'not-held', fp: null, commit: null, said: 'm1 is not in the catalogue' }, upTo('held')],
    ['no trunk value', { trunk: async () => undefined }, { outcome: 'no-trunk', fp: null, commit: null, said: /^m1 has no trunk value/ }, upTo('trunk')],
    ['an older form', { trunk: async () => ({ old: 'fp1-0' }) }, { outcome: 'old-fingerprint', fp: null, said: /older form, fp1-0$/ }, upTo('trunk')],
    ['no build yet', { takeIn: async () => 'waiting' }, { outcome: 'waiting', ...atA, registered: false, composed: [], grant: false, said: /^m1 waits for the build of fp2-a/ }, upTo('takeIn')],
    ['nothing behind', { ...registered, ...nothing }, { outcome: 'current', ...atA, registered: false, composed: [], grant: false, said: 'm1 at fp2-aaaaaaaa is current on node-a, node-b' }, without('takeIn')],
    ['a composition behind', { ...registered, ...nothing, compose: async () => ({ at: atA, written: ['node-b'] }) }, { outcome: 'composed', registered: false, composed: ['node-b'], grant: false }, without('takeIn')],
    ['the holder behind', { ...registered, ...nothing, busHolder: async () => ({ written: 'node-c' }) }, { outcome: 'composed', composed: ['node-c'] }, without('takeIn')],
    ['the grant behind', { ...registered, ...nothing, grants: async () => granted }, { outcome: 'composed', composed: [], grant: true, said: 'm1 at fp2-aaaaaaaa: granted' }, without('takeIn')],
    ['old grants', { ...registered, ...nothing, grants: async () => ({ ...nothingDone, deleted: 2 }) }, { outcome: 'composed', grant: false, said: /deleted 2 grants$/ }, without('takeIn')],
    ['no broker seat', { busHolder: async () => undefined }, { outcome: 'taken-in', composed: ['node-a', 'node-b'] }, without('busHolder')],
    ['registered by another, in time', { ...nothing, takeIn: async () => 'already' }, { outcome: 'current', registered: false }, stepNames],
    ['registered, and nothing else behind', nothing, { outcome: 'taken-in', registered: true, composed: [] }, stepNames],
    ['assigned to no node', noNodes('stands'), { outcome: 'unassigned', ...atA, composed: [], grant: false, said: 'm1 at fp2-aaaaaaaa is assigned to no node' }, without('takeIn')],
    ['the assignment deleted', noNodes('deleted'), { outcome: 'unassigned', said: /assigned to no node$/ }, without('takeIn')],
    ['the assignment lost', noNodes('absent', ['node-b']), { outcome: 'unassigned', said: 'm1 at fp2-aaaaaaaa has no assignment, and still stands on node-b' }, without('takeIn')],
    ['removed by an operator', { ...noNodes('deleted', ['node-a']), held: async () => 'removed', compose: async () => ({ at: undefined, written: ['node-a'] }) }, { outcome: 'removed', fp: null, composed: ['node-a'], said: 'm1 was removed from the catalogue: composed node-a' }, without('trunk', 'registeredAt', 'takeIn')]
  ]
  // Registered at another build: the rest of the run is for what operators wrote meanwhile.
  const standsAtB = { held: async () => 'registered' as const, compose: async () => ({ at: atB, written: ['node-a'] }), busHolder: async () => ({ written: undefined }), grants: async () => nothingDone }
  const goesOn: typeof table = [
    ['registered, no trunk value', { ...standsAtB, trunk: async () => undefined }, { outcome: 'no-trunk', ...atB, registered: false, composed: ['node-a'], grant: false, said: /^m1 has no trunk value.*: composed node-a$/ }, without('registeredAt', 'takeIn')],
    ['registered, an older form', { ...standsAtB, trunk: async () => ({ old: 'fp1-0' }), grants: async () => granted }, { outcome: 'old-fingerprint', ...atB, composed: ['node-a'], grant: true, said: /fp1-0: composed node-a; granted$/ }, without('registeredAt', 'takeIn')],
    ['registered, no build yet', { ...standsAtB, takeIn: async () => 'waiting' }, { outcome: 'waiting', ...atA, registered: false, composed: ['node-a'], said: /^m1 waits for the build of fp2-a.*: composed node-a$/ }, stepNames]
  ]
  for (const [what, steps, expected, ran] of [...table, ...goesOn]) {
    const result = await run(steps)
    t.match(result, expected, what)
    t.same(stepsOf(result.steps), ran, what)
  }
})

t.test('a step that fails says which it was, and what was done before it', async (t) => {
  for (const failing of stepNames) {
    const told: StepDone[] = []
    const { steps, names } = standIns({ [failing]: async () => { throw new BadDocument('it does not fit') } })
    const error: unknown = await take('m1', steps, { now: ticking(), progress: (step) => told.push(step) }).catch((error: unknown) => error)
    if (!(error instanceof StepFailed)) throw error
    const before = stepNames.slice(0, stepNames.indexOf(failing))
    t.match(error, { status: 500, problem: 'step-failed', step: failing, message: `the step ${failing} failed: it does not fit` }, failing)
    t.same(error.members, {
      step: failing,
      done: before,
      registered: before.includes('takeIn'),
      composed: [...before.includes('compose') ? ['node-a', 'node-b'] : [], ...before.includes('busHolder') ? ['node-c'] : []]
    }, failing)
    t.same(names(), [...before, failing], 'nothing follows it')
    t.match(error.result.steps.at(-1), { step: failing, error: 'it does not fit' })
    t.same(told, error.result.steps, 'and it is told like one that ended')
  }
})

t.test('what moved under a run is looked at again, and not for ever', async (t) => {
  const reads = (...values: Array<Awaited<ReturnType<Steps['trunk']>>>) => async () => values.length > 1 ? values.shift() : values[0]
  const counted = (steps: StepDone[], name: StepName) => stepsOf(steps).filter((step) => step === name).length
  const composedB = async () => ({ at: atB, written: [] })

  const later = await run({ trunk: reads(trunkA, trunkB), takeIn: async (_, { fp }) => fp === trunkA.fp ? 'moved' : 'registered', compose: composedB })
  t.match(later, { outcome: 'taken-in', ...atB, registered: true }, 'the trunk moved before the registration: this run registers the newer one')
  t.same(stepsOf(later.steps).slice(0, 8), ['held', 'trunk', 'registeredAt', 'takeIn', 'held', 'trunk', 'registeredAt', 'takeIn'])

  const superseded = { outcome: 'superseded', ...atB, registered: false, grant: true, said: /gone on with, m1 at fp2-bbbbbbbb/ }
  const isAtB: Steps['registeredAt'] = async (_, { fp }) => fp === trunkB.fp
  t.match(await run({ trunk: reads(trunkA, trunkB), registeredAt: isAtB, takeIn: async () => 'moved', compose: composedB }), superseded,
    'overtaken while it registers: what is registered is composed and granted, and nothing else is claimed')
  const compositions = [async () => ({ at: atB, written: ['node-a'] }), composedB]
  t.match(await run({ trunk: reads(trunkA, trunkB), registeredAt: isAtB, compose: async () => (compositions.shift() ?? composedB)() }), { ...superseded, composed: ['node-a', 'node-c'] },
    'overtaken before it composes')
  let grants = 0
  t.match(await run({
    trunk: reads(trunkA, trunkB),
    registeredAt: isAtB,
    compose: async () => ({ at: grants === 0 ? atA : atB, written: [] }),
    grants: async () => grants++ === 0 ? { ...nothingDone, moved: true } : granted
  }), superseded, 'overtaken before the grant')

  const odd = [atB, atA]
  const righted = await run({ compose: async () => ({ at: odd.shift(), written: [] }) })
  t.match(righted, { outcome: 'taken-in', ...atA, registered: true }, 'a registration that is not what the trunk says is not gone on with')
  t.equal(counted(righted.steps, 'takeIn'), 2)

  grants = 0
  const moved = await run({ grants: async () => grants++ < 2 ? { ...nothingDone, moved: true } : granted })
  t.match(moved, { outcome: 'taken-in', grant: true, composed: ['node-a', 'node-b', 'node-c'] })
  t.equal(counted(moved.steps, 'compose'), 3)

  const catalogue: Array<'held' | 'removed'> = ['held', 'removed']
  const removed = await run({
    held: async () => catalogue.shift() ?? 'removed',
    takeIn: async () => 'moved',
    nodesOf: async () => ({ assignment: 'deleted', assigned: [], left: [] }),
    compose: async () => ({ at: undefined, written: [] })
  })
  t.match(removed, { outcome: 'removed' }, 'a module that is removed while it is taken in')

  let looks = 0
  const seen = await run({ registeredAt: async () => true, grants: async () => ({ ...nothingDone, granted: looks === 0, stale: ++looks < 3 }) })
  t.match(seen, { outcome: 'composed', grant: true }, 'where something that was seen is another at the end, all is looked at again')
  t.equal(counted(seen.steps, 'held'), 3)
  const restless = await run({ registeredAt: async () => true, grants: async () => ({ ...nothingDone, stale: true }) })
  t.match(restless, { outcome: 'composed' }, 'but somebody who writes without end does not make it fail')
  t.equal(counted(restless.steps, 'held'), 5)

  const forEver = /moved 5 times meanwhile: try again$/
  await t.rejects(run({ takeIn: async () => 'moved' }), { step: 'takeIn', message: forEver })
  await t.rejects(run({ compose: composedB }), { step: 'compose', message: forEver })
  await t.rejects(run({ grants: async () => ({ ...nothingDone, moved: true }) }), { step: 'grants', message: forEver })
})

/** One of many interleavings: calls, and ends of what runs, good or bad; a turn of the event loop after each, or not. */
const interleaving = fc.array(fc.record({ what: fc.constantFrom('call', 'call', 'call', 'end', 'fail'), turn: fc.boolean() }), { maxLength: 40 })

t.test('whoever calls gets a run that began after the call, never two at once, and many at once share one', async (t) => {
  await t.resolves(fc.assert(fc.asyncProperty(interleaving, async (actions) => {
    const shared = new Shared<number>()
    const ends: Array<(good: boolean) => void> = []
    const answers: Array<Promise<void>> = []
    const beganAt: number[] = []
    let clock = 0
    let mostWaiting = 0
    const work = (): Promise<number> => {
      if (ends.length > 0) throw new Error('two at once')
      beganAt.push(++clock)
      const number = beganAt.length
      return new Promise<number>((resolve, reject) => {
        ends.push((good) => { if (good) resolve(number); else reject(new Error(String(number))) })
      })
    }
    const end = (good: boolean): void => {
      ends.pop()?.(good)
      clock++
    }
    let waiting = 0
    for (const { what, turn: turns } of actions) {
      if (what === 'call') {
        const called = ++clock
        const runsThen = beganAt.length
        mostWaiting = Math.max(mostWaiting, ++waiting)
        answers.push(shared.run(work).catch((error: unknown) => Number((error as Error).message)).then((number) => {
          waiting--
          const began = beganAt[number - 1] ?? 0
          if (began < called) throw new Error('an answer of a run that began before the call')
          // At most the one that runs now ends first; the next one is for all who wait.
          if (number > runsThen + 2) throw new Error('a call waited for more than two runs')
        }))
      } else end(what === 'end')
      if (turns) await turn()
    }
    while (!shared.idle) {
      end(true)
      await turn()
    }
    await shared.ended()
    await Promise.all(answers)
    if (beganAt.length > answers.length) throw new Error('more runs than calls')
  }), { numRuns: 300 }))

  const shared = new Shared<number>()
  let runs = 0
  const all = await Promise.all(Array.from({ length: 1000 }, () => shared.run(async () => ++runs)))
  t.equal(runs, 2, 'however many call at once, two runs are enough')
  t.same(new Set(all), new Set([1, 2]))
  t.ok(shared.idle)
})

t.test('a lost write is computed again until the deadline, a passing fault a few times, anything else not at all', async (t) => {
  /** Time that passes by pauses alone. */
  const patience = (random = () => 1) => {
    const pauses: number[] = []
    let now = 1000
    return { pauses, now: () => now, random, pause: async (ms: number) => { pauses.push(ms); now += ms } }
  }
  /** Fails as told, then answers. */
  const failing = (...errors: Error[]) => {
    let tries = 0
    return { tries: () => tries, work: async () => { const error = errors[tries++]; if (error) throw error; return 'done' } }
  }
  const conflict = new Conflict('written by another')
  const passing = new Transient('nobody answers')

  const lost = failing(...Array<Error>(20).fill(conflict))
  const patient = patience()
  t.equal(await again(lost.work, 31_000, patient), 'done')
  t.equal(lost.tries(), 21)
  t.same(patient.pauses.slice(0, 6), [100, 200, 400, 800, 1000, 1000], 'the pauses grow, to a second')
  t.ok(patience(() => 0).random() === 0 && await again(failing(conflict).work, 31_000, patience(() => 0)))

  const never = failing(...Array<Error>(1000).fill(conflict))
  const until = patience()
  await t.rejects(again(never.work, 31_000, until), { message: 'not through within 30 s: written by another', cause: conflict })
  t.ok(until.now() <= 31_000, 'it does not pause past the deadline')

  t.equal(await again(failing(passing, passing).work, 31_000, patience()), 'done')
  const thrice = failing(passing, passing, passing)
  await t.rejects(again(thrice.work, 31_000, patience()), passing)
  t.equal(thrice.tries(), limits.transientTries)
  t.equal(await again(failing(conflict, passing, conflict, passing, conflict).work, 31_000, patience()), 'done', 'a conflict does not count as a fault')
  for (const error of [new BadDocument('x'), new Error('x'), new TypeError('x')]) {
    const once = failing(error)
    await t.rejects(again(once.work, 31_000, patience()), error)
    t.equal(once.tries(), 1)
  }
})

t.test('a written key wakes exactly the modules it concerns', async (t) => {
  const own = new Set<string>()
  const woken: string[] = []
  const wakes = new Wakes({ wake: (module) => woken.push(module), isOwn: (bucket, { key, revision }) => own.has(`${bucket} ${key} ${revision}`) })
  let revision = 0
  const entry = (key: string, document?: unknown, text = document === undefined ? '' : JSON.stringify(document)) =>
    ({ key, revision: ++revision, deleted: document === undefined && text === '', text })
  const wrote = (bucket: BucketName, key: string, document?: unknown, text?: string) => {
    woken.length = 0
    wakes.written(bucket, entry(key, document, text))
    return [...woken].sort()
  }
  const known: Array<[string, unknown]> = [
    ['module.m1', { module: 'm1' }], ['module.m2', { module: 'm2' }], ['module.db', { module: 'db', fp: fp('a') }], ['module.bus', { module: 'bus' }],
    ['assignment.m1', { nodes: ['node-a', 'node-b'] }], ['assignment.m2', { nodes: ['node-b'] }],
    ['binding.m2', { url: { module: 'db', offer: 'url' } }], ['seat.broker', { module: 'bus', node: 'node-c' }], ['node.node-a', { node: 'node-a' }]
  ]
  for (const [key, document] of known) wakes.learn(entry(key, document))
  t.same(woken, [], 'what stood before wakes nobody by itself')

  t.same(wrote('trunk', 'm1', { fp: 'x' }), ['m1'])
  t.same(wrote('trunk', 'm1'), ['m1'], 'deleted')
  t.same(wrote('trunk', 'new', {}), ['new'], 'not known')
  t.same(wrote('builds', `done.m2.${fp('a')}`, {}), ['m2'])
  t.same(wrote('builds', 'other.m2.x', {}), [])
  t.same(wrote('settings', 'm1', {}), ['m1'])
  t.same(wrote('inventory', 'assignment.m1', { nodes: ['node-a'] }), ['m1'])
  t.same(wrote('inventory', 'node.node-a', {}), ['m1'])
  t.same(wrote('inventory', 'node.node-b', {}), ['m2'], 'm1 is no longer there')
  t.same(wrote('inventory', 'node.node-z', {}), [])
  t.same(wrote('inventory', 'binding.m1', { url: { module: 'db', offer: 'url' } }), ['m1'])
  t.same(wrote('inventory', 'module.db', { module: 'db', fp: fp('b') }), ['db', 'm1', 'm2'], 'those bound to what it offers, too')
  t.same(wrote('inventory', 'binding.m1', undefined), ['m1'])
  t.same(wrote('inventory', 'module.db', undefined), ['db', 'm2'])
  own.add(`inventory module.db ${revision + 1}`)
  t.same(wrote('inventory', 'module.db', { module: 'db', fp: fp('a') }), ['m2'], "this process's own registration does not wake its module, which is being taken in")
  t.same(wrote('inventory', 'module.bus', { module: 'bus', fp: fp('a') }), ['bus', 'bus', 'db', 'm1', 'm2'], 'the broker module is registered: all who waited for it')
  t.same(wrote('inventory', 'module.bus', { module: 'bus', fp: fp('b') }), ['bus'])
  t.same(wrote('inventory', 'seat.broker', { module: 'bus', node: 'node-a' }), ['bus', 'db', 'm1', 'm2'])
  for (const text of ['', 'no JSON', 'null', '[]', '{"nodes":7}', '{"nodes":[7]}']) t.same(wrote('inventory', 'assignment.m2', undefined, text), ['m2'], text)
  t.same(wrote('inventory', 'binding.m2', { a: null, b: 7, c: { module: 7 } }), ['m2'])
  wrote('inventory', 'binding.m2', { url: { module: 'db', offer: 'url' } })
  t.same(wrote('inventory', 'binding.db', { x: { module: 'm1', offer: 'y' } }), ['db'])
  t.same(wrote('inventory', 'binding.m1', { x: { module: 'm2', offer: 'y' } }), ['db', 'm1', 'm2'], 'a ring: one of them is not composed, and which one may be another now')
  t.same(wrote('inventory', 'binding.db', {}), ['db', 'm1', 'm2'], 'and when it is open again')
  t.same(wrote('inventory', 'binding.m1', {}), ['m1'])
  t.same(wrote('takeins', 'm1', {}), [])
  t.same(wrote('compositions', 'node-a.m1', {}), [])

  woken.length = 0
  wakes.all('start')
  t.equal(woken[0], 'bus', 'the broker module first, since all others wait for it')
  t.same(woken.sort(), ['bus', 'db', 'm1', 'm2'], 'each once')
  wakes.anew()
  woken.length = 0
  wakes.all('start')
  t.same(woken, [])
})

t.test('a process knows its own writes, and what went through a store', async (t) => {
  const own = new OwnWrites()
  const memory = new MemoryStore()
  const wrote: string[] = []
  const store = telling(own.around(memory), (bucket, key, revision) => wrote.push(`${bucket} ${key} ${revision}`))
  const revision = await store.write('settings', 'm1', '{}', 0)
  const marker = await store.purge('settings', 'm1', revision)
  await t.rejects(store.write('settings', 'm1', '{}', 0), Conflict)
  t.same(wrote, [`settings m1 ${revision}`, `settings m1 ${marker}`])
  const entry = { key: 'm1', deleted: false, text: '' }
  t.ok(own.has('settings', { ...entry, revision }))
  t.ok(own.has('settings', { ...entry, revision: marker }))
  t.notOk(own.has('settings', { ...entry, revision: marker + 1 }))
  t.notOk(own.has('trunk', { ...entry, revision }))
  let heard = false
  const early = { ...entry, revision: 99, text: '{"early":1}' }
  memory.fault = ({ text }, when) => { if (when === 'after') heard = own.has('settings', { ...early, text }) }
  await store.write('settings', 'm1', early.text, marker)
  t.ok(heard, 'even before the acknowledgement is there')
  t.notOk(own.has('settings', early), 'but not what another writes later')
  t.equal((await store.readAll('settings', '*')).size, 1)
  t.equal(await store.epoch('settings'), await memory.epoch('settings'))
})

/** A crash: the process is gone in the middle of a call. */
class Crash extends Error {}

/** A gateway in memory that takes in when keys wake it. */
function automatic (store: MemoryStore, troubles: unknown[]): TakeIns {
  const own = new OwnWrites()
  const mine = own.around(store)
  const takeIns = new TakeIns({
    store: () => mine,
    brokers: { applied: async () => {} },
    makeCredential: newUser,
    patience: { now: Date.now, random: Math.random, pause: turn },
    ended () {},
    trouble: (_, error) => troubles.push(error)
  })
  const wakes = new Wakes({ wake: (module, why) => takeIns.wake(module, why), isOwn: (bucket, entry) => own.has(bucket, entry) })
  store.followers.push((bucket, entry) => { if (['trunk', 'builds', 'settings', 'inventory'].includes(bucket)) wakes.written(bucket, entry) })
  for (const module of ['bus', 'm1', 'm2']) {
    for (const what of ['module', 'assignment', 'binding']) for (const entry of store.history('inventory', `${what}.${module}`)) wakes.learn(entry)
  }
  for (const entry of store.history('inventory', 'seat.broker')) wakes.learn(entry)
  wakes.all('start')
  return takeIns
}

t.test('a crash between any two writes leaves nothing to repair: done again, the state is the same, and nothing that stood is written', async (t) => {
  /** What happens to m1, before a run that may crash. */
  const changes: Array<[string, (store: MemoryStore) => Promise<unknown>]> = [
    ['a first build', async () => {}],
    ['a new build', async (store) => {
      await store.put('builds', `done.m1.${fp('b')}`, { fp: fp('b'), commit: commitOf('b'), manifest: sampleManifest('m1', { offers: { url: 'two' } }) })
      await store.put('trunk', 'm1', { fp: fp('b'), commit: commitOf('b') })
    }],
    ['off a node', async (store) => store.put('inventory', 'assignment.m1', { nodes: ['node-a'] })],
    ['off all nodes', async (store) => store.put('inventory', 'assignment.m1', { nodes: [] })],
    ['off all nodes before it was granted', async (store) => {
      const key = `m1.${fp('a')}`
      await store.purge('grants', key, (await store.read('grants', key))?.revision ?? 0)
      return store.put('inventory', 'assignment.m1', { nodes: [] })
    }],
    ["a node's key renewed", async (store) => store.put('inventory', 'node.node-b', { node: 'node-b', curve: curve('D') })],
    ['removed', async (store) => {
      const entry = await store.read('inventory', 'module.m1')
      await store.purge('inventory', 'module.m1', entry?.revision ?? 0)
    }]
  ]
  for (const [what, change] of changes) {
    const prepared = async () => {
      const store = await standingMesh()
      const gateway = inMemory(store)
      await gateway.take('bus')
      if (what !== 'a first build') {
        await gateway.take('m1')
        await gateway.take('m2')
      }
      await change(store)
      return { store, gateway, before: store.writes.length }
    }
    const clean = await prepared()
    await clean.gateway.take('m1')
    const right = await stateOf(clean.store)
    t.same(await isWhole(clean.store), [], what)
    const writes = clean.store.writes.length - clean.before
    t.ok(writes > 1, `${what}: ${writes} writes`)

    for (let nth = 1; nth <= writes; nth++) {
      for (const at of ['before', 'after'] as const) {
        const { store, before } = await prepared()
        let gone = false
        store.fault = (_, when) => {
          // Nothing that the dead process still tries is taken.
          if (gone || (when === at && store.writes.length - before === (at === 'before' ? nth - 1 : nth))) { gone = true; throw new Crash('killed') }
        }
        await t.rejects(inMemory(store).take('m1'), { message: /killed/ })
        store.fault = undefined
        const stood = store.writes.length
        await inMemory(store).take('m1')
        t.same(await stateOf(store), right, `${what}, crashed ${at} write ${nth}`)
        t.same(await isWhole(store), [], `${what}, crashed ${at} write ${nth}`)
        t.equal(store.writes.length - stood, writes - (at === 'before' ? nth - 1 : nth), 'what stood is not written again')
        await inMemory(store).take('m1')
        t.equal(store.writes.length, before + writes, 'and once more writes nothing')
      }
    }
  }
})

/** A run that fails because what it needs is not there yet is what the next run is for. */
const unlessStepFailed = (error: unknown): void => { if (!(error instanceof StepFailed)) throw error }

t.test('whatever is written while several gateways take in, a run after it brings what a fresh mesh would have', async (t) => {
  const action = fc.oneof(
    fc.constantFrom(...Object.keys(deeds)).map((deed) => ({ deed })),
    fc.record({ gateway: fc.nat(2), module: fc.constantFrom('m1', 'm1', 'm2', 'bus') })
  )
  const pauses = fc.array(fc.nat(4), { minLength: 50, maxLength: 50 })
  await t.resolves(fc.assert(fc.asyncProperty(fc.array(action, { minLength: 3, maxLength: 14 }), pauses, async (actions, turns) => {
    const store = await standingMesh()
    let at = 0
    store.pace = async () => { for (let n = turns[at++ % turns.length] ?? 0; n > 0; n--) await turn() }
    const gateways = [0, 1, 2].map(() => inMemory(store))
    const going: Array<Promise<unknown>> = []
    for (const one of actions) {
      if ('deed' in one) going.push(deeds[one.deed]?.(store) ?? Promise.resolve())
      else going.push((gateways[one.gateway] ?? inMemory(store)).take(one.module).catch(unlessStepFailed))
      await store.pace()
    }
    await Promise.all(going)
    store.pace = undefined
    const all = async (of: MemoryStore) => { for (const module of ['bus', 'm1', 'm2', 'm1']) await inMemory(of).take(module) }
    await all(store)
    const fresh = await standingMesh()
    for (const one of actions) if ('deed' in one) await deeds[one.deed]?.(fresh)
    await all(fresh)
    assert.deepEqual(await stateOf(store), await stateOf(fresh))
    assert.deepEqual(await isWhole(store), [])
    const writes = store.writes.length
    await all(store)
    assert.equal(store.writes.length, writes)
  }), { numRuns: 80 }))
})

t.test('gateways that are woken by the keys alone bring it by themselves, whatever is written when', async (t) => {
  const pauses = fc.array(fc.nat(4), { minLength: 50, maxLength: 50 })
  const written = fc.array(fc.record({ deed: fc.constantFrom(...Object.keys(deeds)), inQuiet: fc.boolean() }), { minLength: 1, maxLength: 6 })
  await t.resolves(fc.assert(fc.asyncProperty(written, fc.integer({ min: 1, max: 3 }), pauses, async (done, gateways, turns) => {
    const store = await standingMesh()
    let at = 0
    store.pace = async () => { for (let n = turns[at++ % turns.length] ?? 0; n > 0; n--) await turn() }
    const troubles: unknown[] = []
    const all = Array.from({ length: gateways }, () => automatic(store, troubles))
    // A write is heard a turn later, and wakes: quiet is when no gateway has had work for some turns.
    const untilQuiet = async () => {
      for (let quiet = 0; quiet < 10; quiet++) {
        await turn()
        if (all.some(({ running }) => running > 0)) quiet = 0
      }
    }
    for (const { deed, inQuiet } of done) {
      if (inQuiet) await untilQuiet()
      await deeds[deed]?.(store)
      for (let n = 5; n > 0; n--) await store.pace()
    }
    await untilQuiet()
    store.pace = undefined
    const fresh = await standingMesh()
    for (const { deed } of done) await deeds[deed]?.(fresh)
    for (const module of ['bus', 'm1', 'm2', 'm1']) await inMemory(fresh).take(module)
    assert.deepEqual(troubles, [])
    assert.deepEqual(await stateOf(store), await stateOf(fresh))
    assert.deepEqual(await isWhole(store), [])
  }), { numRuns: 80 }))
})

t.test('the grant is always the last write, and the broker module\'s composition the last of the compositions', async (t) => {
  const store = await standingMesh()
  const gateway = inMemory(store)
  await gateway.take('bus')
  store.writes.length = 0
  gateway.applied.length = 0
  const { steps } = await gateway.take('m1')
  t.same(store.writes.map(({ bucket, key }) => `${bucket} ${key}`), [
    'inventory module.m1', 'compositions node-a.m1', 'compositions node-b.m1', 'compositions node-c.bus', `grants m1.${fp('a')}`
  ])
  t.same(stepsOf(steps), stepNames)
  const holder = await store.read('compositions', 'node-c.bus')
  t.same(gateway.applied, [`node-c ${holder?.revision}`], 'the servers were asked for the list that was written')
})
