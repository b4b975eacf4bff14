/**
 * Several gateways on one bus, and gateways that are killed: what the buckets took is judged against a quiet run. MESH_BAR=full is the long
 * form (200 modules on 20 nodes, 200 kills), which `npm run bar` runs; MESH_BAR_SEED draws other moments. What a take-in costs is measured by
 * `npm run bench`, how many rounds of calls it takes is counted in take-interleaved.test.ts.
 */
import t from 'tap'
import { describeMesh } from '../examples/generate-mesh.mjs'
import type { MeshDescription } from '../src/schemas/mesh-description.js'
import { commitOf, fp } from './support/bus/buckets.js'
import { differences, judge, standing } from './support/history/judge.js'
import type { Took } from './support/history/record.js'
import { quietly, world } from './support/history/world.js'
import { post } from './support/take-in.js'
import { pause } from './support/until.js'

const full = process.env.MESH_BAR === 'full'
const seed = Number(process.env.MESH_BAR_SEED ?? 20261130)
const { modules, nodes, kills } = full ? { modules: 200, nodes: 20, kills: 200 } : { modules: 16, nodes: 4, kills: 6 }
const holder = (description: MeshDescription): string => `${description.seat?.node}.${description.seat?.module}`

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function random (from: number): () => number {
  let state = from
  return () => {
    state = (state + 0x6D2B79F5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

t.test('the judge of histories sees each promise that is broken', async (t) => {
  const epoch = 7
  const at = (digit: string) => ({ fp: fp(digit), commit: commitOf(digit) })
  let clock = 0
  const took = (bucket: Took['bucket'], key: string, revision: number, document?: object): Took =>
    ({ bucket, key, revision, text: document && JSON.stringify(document), at: ++clock })
  const registered = (revision: number, digit: string) => took('inventory', 'module.m1', revision, { module: 'm1', ...at(digit) })
  const composed = (revision: number, digit: string, port = 1) => took('compositions', 'n1.m1', revision, { node: 'n1', module: 'm1', ...at(digit), config: { port } })
  const granted = (revision: number, digit: string, named: string) => took('grants', `m1.${fp(digit)}`, revision, { module: 'm1', ...at(digit), nodes: { n1: named } })
  const good = () => [registered(1, 'a'), composed(1, 'a'), granted(1, 'a', '7.1'), registered(2, 'b'), composed(2, 'b'), granted(2, 'b', '7.2'), took('grants', `m1.${fp('a')}`, 3)]
  t.same(judge(good(), { epoch, mostWrites: 1 }), [], 'what is as it should be')
  const [first, , , ...rest] = good()
  const planted: Array<[string, Took[], RegExp]> = [
    ['the grant first', [registered(1, 'a'), granted(1, 'a', '7.1'), composed(1, 'a')], /names revision 7\.1 of n1\.m1, which was not there when it was written/],
    ['a grant of what carried another fingerprint', [...good(), granted(4, 'c', '7.2')], /m1 at fp2-cccccccc names revision 7\.2 of n1\.m1, which carried fp2-bbbbbbbb/],
    ['a grant of another making of the bucket', [registered(1, 'a'), composed(1, 'a'), granted(1, 'a', '6.1')], /which was not there/],
    ['a grant of no node', [took('grants', `m1.${fp('a')}`, 1, { module: 'm1', ...at('a'), nodes: {} })], /names no node/],
    ['registered twice', [registered(1, 'a'), registered(2, 'a')], /module\.m1 was registered at fp2-aaaaaaaa twice, again at revision 2/],
    ['written as it stood', [composed(1, 'a'), composed(2, 'a')], /compositions n1\.m1 was written as it stood, at revision 2/],
    ['written too often', [registered(1, 'a'), composed(1, 'a', 1), composed(2, 'a', 2)], /n1\.m1 was written 2 times for 1 registrations/]
  ]
  for (const [what, history, says] of planted) t.match(judge(history, { epoch, mostWrites: 1 }), [says], what)
  t.same(differences(standing(good()), standing(good())), [])
  t.match(differences(standing(good().slice(0, -1)), standing(good())), [/^grants m1\.fp2-a/], 'a grant that should be gone')
  t.match(differences(standing([first as Took, ...rest.filter(({ bucket }) => bucket !== 'compositions')]), standing(good())), [/^compositions n1\.m1: undefined is not/], 'a composition that is missing')
})

t.test('A1: 100 POSTs of one module at three gateways at once: one registration, one revision a node, one grant, and each answer true', async (t) => {
  const on = await world(t)
  const description = describeMesh({ modules: 1, nodes: 3 })
  await on.apply(description)
  const gateways = await Promise.all([1, 2, 3].map(() => on.gateway('manual')))
  const [first] = gateways
  if (first) t.equal((await post({ gateway: first }, 'bus')).status, 200)
  const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => post({ gateway: gateways[i % 3] ?? gateways[0]! }, 'm0')))
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]))
  t.same(new Set(answers.map(({ json }) => json.fp)), new Set([description.modules.m0?.build?.fp]))
  const took = await on.recording.caughtUp()
  t.same(judge(took, { epoch: on.recording.epoch }), [])
  const writes = (bucket: string, key: string) => took.filter((one) => one.bucket === bucket && one.key === key).length
  t.equal(took.filter(({ key, text }) => key === 'module.m0' && text?.includes('"fp"')).length, 1, 'one registration')
  for (const node of ['n0', 'n1', 'n2']) t.equal(writes('compositions', `${node}.m0`), 1, `one revision of ${node}`)
  t.equal(writes('grants', `m0.${description.modules.m0?.build?.fp}`), 1, 'one grant')
  // Only one of those that say so did each thing.
  t.equal(answers.filter(({ json }) => json.registered).length > 0, true)
  t.equal((await post({ gateway: gateways[1]! }, 'm0')).json.outcome, 'current')
})

t.test(`all ${modules} modules on ${nodes} nodes move at once under three gateways: it ends as a quiet run does, with no work done twice`, async (t) => {
  const [before, after] = [1, 2].map((build) => describeMesh({ modules, nodes, build })) as [MeshDescription, MeshDescription]
  const [quietBefore, quietAfter] = await quietly(t, [before, after])
  const on = await world(t)
  await on.apply(before)
  const gateways = await Promise.all([1, 2, 3].map(() => on.gateway()))
  const ms = full ? 180_000 : 60_000
  t.same(await on.becomes(quietBefore!, ms), [], 'the first build is taken in')
  await on.apply(after)
  t.same(await on.becomes(quietAfter!, ms), [], 'the next one, too')
  // Those that run still have their end: nothing may change any more.
  await Promise.all(gateways.map((gateway) => gateway.stop()))
  t.same(differences(await on.ends(), quietAfter!), [], 'and so it stays')
  t.same(judge(await on.recording.caughtUp(), { epoch: on.recording.epoch, holder: holder(before), mostWrites: 2 }), [])
})

t.test(`A2: a gateway is killed ${kills} times at random moments (seed ${seed}): the next start alone brings all to where a quiet run ends`, async (t) => {
  const draw = random(seed)
  const one = describeMesh({ modules: 6, nodes: 3, spread: 2, build: 1 })
  const two = describeMesh({ modules: 6, nodes: 3, spread: 2, build: 2 })
  // A module leaves a node and another comes to one, so that there is something to remove, too.
  Object.assign(two.modules.m1 ?? {}, { nodes: ['n1'] })
  Object.assign(two.modules.m4 ?? {}, { nodes: ['n0', 'n1', 'n2'] })
  const descriptions = [one, two]
  const quiet = await quietly(t, [one, two, one])
  t.same(differences(quiet[0]!, quiet[2]!), [], 'a rollback ends where it came from')
  const on = await world(t)
  await on.apply(one)
  let gateway = await on.gateway()
  const began = Date.now()
  t.same(await on.becomes(quiet[0]!, 30_000), [])
  const span = Math.min(1000, 2 * (Date.now() - began))
  for (let kill = 1; kill <= kills; kill++) {
    const next = kill % 2
    const moving = on.apply(descriptions[next]!)
    await pause(draw() * span)
    await gateway.kill()
    await moving
    // Half of them do not get through their start pass either.
    if (draw() < 0.5) {
      const doomed = await on.gateway()
      await pause(draw() * span / 2)
      await doomed.kill()
    }
    gateway = await on.gateway()
    const differ = await on.becomes(quiet[next]!, 30_000)
    t.same(differ, [], `after kill ${kill}`)
    if (differ.length > 0) break
  }
  await gateway.stop()
  t.same(judge(await on.recording.caughtUp(), { epoch: on.recording.epoch, holder: holder(one) }), [], 'no promise was broken at any revision')
})
