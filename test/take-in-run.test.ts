/** How a take-in is followed, waited for, kept to its plan and gone on with, on a real bus. */
import t from 'tap'
import { broker } from './support/bus/broker.js'
import { commitOf, fp, sampleManifest } from './support/bus/buckets.js'
import { startGateway } from './support/gateway.js'
import { allSteps, keys, post, since, stage, stepsIn, without, type Stage } from './support/take-in.js'
import { eventually } from './support/until.js'
import { http } from './support/wire/http.js'
import { svid } from './support/wire/signing.js'
import { sse, type EventStream } from './support/wire/sse.js'

const token = svid(keys.ed, 'operator/alice')
const target = (module: string): string => `/modules/${module}/take-in`
const events = (t: Parameters<typeof sse>[0], { gateway }: Pick<Stage, 'gateway'>, module: string, headers = {}): Promise<EventStream> =>
  sse(t, gateway.port, target(module), { method: 'POST', token, headers, wait: 30_000 })
const told = (stream: EventStream): string[] => stream.named('step').map(({ json }) => json.step)
const grantOf = (module: string, digit: string): string => `${module}.${fp(digit)}`

t.test('events: each step as it ends, then how it ended; what is known before is a plain answer', async (t) => {
  const on = await stage(t)
  const { buckets, nc, gateway } = on
  for (const [module, who, status, problem] of [['nobody', 'operator/alice', 404, 'not-held'], ['m1', 'reader/grafana', 403, 'forbidden'], ['M1', 'operator/alice', 400, 'invalid']] as const) {
    const refused = await sse(t, gateway.port, target(module), { method: 'POST', token: svid(keys.ed, who) })
    t.match(refused, { status, json: { type: `urn:mesh-gateway:problem:${problem}` } }, problem)
  }
  await buckets.holder('bus', 'n3', ['s1'])
  const agent = await broker(t, nc, { server: 's1', delay: 300 })
  await buckets.ready('m1', 'a', ['n1', 'n2'])
  const stale = await events(t, on, 'm1', { 'If-Match': '"other"' })
  t.match(stale, { status: 412, json: { type: 'urn:mesh-gateway:problem:plan-changed' } })

  const stream = await events(t, on, 'm1')
  t.match(stream, { status: 200, headers: { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-store' } })
  t.notOk(stream.named('done')[0], 'it opens while the agent is being asked')
  await stream.untilClosed(10_000)
  t.same(told(stream), allSteps)
  const [done] = stream.named('done')
  t.match(done?.json, { outcome: 'taken-in', module: 'm1', composed: ['n1', 'n2', 'n3'], grant: true })
  t.same(stream.named('step').map(({ json }) => json), done?.json.steps)
  t.equal(stream.events().at(-1)?.event, 'done', 'and nothing after it')

  agent.says = 'line 7'
  await buckets.ready('m2', 'a', ['n1'])
  const failing = await events(t, on, 'm2')
  await failing.untilClosed(10_000)
  t.match(failing.named('failed')[0]?.json, { type: 'urn:mesh-gateway:problem:step-failed', status: 500, step: 'busHolder', detail: /line 7/ })
  t.match(failing.named('step').at(-1)?.json, { step: 'busHolder', error: /line 7/ })
  t.same(failing.named('done'), [])

  // A client that goes away does not stop the run.
  agent.says = 'applied'
  const gone = await events(t, on, 'm2')
  gone.end()
  await eventually('m2 is granted', () => buckets.get('grants', grantOf('m2', 'a')))
})

t.test('several who share a run are all told each of its steps', async (t) => {
  const on = await stage(t)
  const { buckets, nc } = on
  await buckets.holder('bus', 'n3', ['s1'])
  const agent = await broker(t, nc, { server: 's1', delay: 400 })
  await buckets.ready('m1', 'a', ['n1'])
  const first = events(t, on, 'm1')
  await eventually('the first run is under way', () => agent.asked.length > 0)
  const sharing = await Promise.all(Array.from({ length: 30 }, () => events(t, on, 'm1')))
  for (const stream of sharing) await stream.untilClosed(10_000)
  t.match((await first).named('done')[0]?.json, { outcome: 'taken-in' })
  for (const stream of sharing) t.same(told(stream), without('takeIn'))
  t.equal(new Set(sharing.map((stream) => stream.named('done')[0]?.data)).size, 1, 'it was one run')
})

t.test('who waits for a build sees its run as well; a gateway that drains answers what it knows', async (t) => {
  const on = await stage(t, { env: { TAKE_IN: 'auto' } })
  const { buckets, gateway } = on
  for (const module of ['m1', 'm2']) {
    await buckets.hold(module)
    await buckets.assign(module, ['n1'])
    await buckets.trunk(module, 'a')
  }
  const stream = await events(t, on, 'm1', { Prefer: 'wait=30' })
  await eventually('it waits', () => told(stream).includes('takeIn'))
  t.notOk(stream.closed)
  await buckets.done('m1', 'a')
  await stream.untilClosed(10_000)
  t.match(stream.named('done')[0]?.json, { outcome: /^(taken-in|current)$/, fp: fp('a') })
  t.ok(told(stream).filter((step) => step === 'held').length >= 2, 'the steps of both runs')

  const waiting = await events(t, on, 'm2', { Prefer: 'wait=50' })
  const plain = http(gateway.port, 'POST', target('m2'), { token, headers: { Prefer: 'wait=50' }, wait: 20_000 })
  const waits = () => gateway.log.filter(({ module }) => module === 'm2').flatMap(({ by }) => by as string[]).filter((by) => by === 'operator alice')
  await eventually('both wait', () => waits().length === 2)
  await gateway.stop()
  await waiting.untilClosed()
  t.match(waiting.named('done')[0]?.json, { outcome: 'waiting' })
  t.match(await plain, { status: 202, json: { outcome: 'waiting' } })
})

t.test('what operators write counts although the build is not there, or the trunk says nothing', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  await buckets.holder('bus', 'n3')
  await buckets.ready('m1', 'a', ['n1', 'n2'])
  t.match((await post(on, 'm1')).json, { outcome: 'taken-in' })

  await buckets.trunk('m1', 'b')
  await buckets.put('settings', 'm1', { port: 1 })
  const waiting = await post(on, 'm1')
  t.match(waiting, { status: 202, json: { outcome: 'waiting', fp: fp('b'), registered: false, composed: ['n1', 'n2'], grant: false, said: /waits for the build.*: composed n1, n2$/ } })
  t.same(stepsIn(waiting.json), allSteps)
  t.match(await buckets.composition('n1', 'm1'), { fp: fp('a'), config: { port: 1 } })

  await buckets.assign('m1', ['n1'])
  t.match((await post(on, 'm1')).json, { outcome: 'waiting', composed: ['n2', 'n3'], grant: true })
  t.same(Object.keys((await buckets.get('grants', grantOf('m1', 'a'))).nodes), ['n1'])
  t.notOk(await buckets.composition('n2', 'm1'))

  await buckets.put('trunk', 'm1', { fp: 'fp1-0', commit: commitOf('a') })
  await buckets.put('settings', 'm1', { port: 2 })
  t.match((await post(on, 'm1')).json, { outcome: 'old-fingerprint', fp: fp('a'), composed: ['n1'] })
  await buckets.delete('trunk', 'm1')
  await buckets.put('settings', 'm1', { port: 3 })
  t.match((await post(on, 'm1')).json, { outcome: 'no-trunk', fp: fp('a'), composed: ['n1'] })
  t.match(await buckets.composition('n1', 'm1'), { fp: fp('a'), config: { port: 3 } })
  const from = spy.writes.length
  t.match((await post(on, 'm1')).json, { outcome: 'no-trunk', composed: [] })
  t.same(since(on, from), [], 'and once more writes nothing')

  await buckets.hold('m2')
  await buckets.assign('m2', ['n1'])
  await buckets.trunk('m2', 'a')
  t.match((await post(on, 'm2')).json, { outcome: 'waiting', composed: [], steps: [{ step: 'held' }, { step: 'trunk' }, { step: 'registeredAt' }, { step: 'takeIn' }] })
})

t.test('a rollback is a take-in like any other', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  await buckets.holder('bus', 'n3')
  await buckets.ready('m1', 'a', ['n1', 'n2'])
  await post(on, 'm1')
  const older = await buckets.composition('n1', 'm1')
  await buckets.done('m1', 'b', sampleManifest('m1', { config: { port: { default: 2 } }, permissions: { publish: ['new.>'] } }))
  await buckets.trunk('m1', 'b')
  t.match((await post(on, 'm1')).json, { outcome: 'taken-in', fp: fp('b'), composed: ['n1', 'n2', 'n3'] })
  await buckets.trunk('m1', 'a')
  t.match((await post(on, 'm1')).json, { outcome: 'taken-in', fp: fp('a'), registered: true, composed: ['n1', 'n2', 'n3'], grant: true })
  t.same(await buckets.composition('n1', 'm1'), older, 'the composition of the older build, with the same credential')
  t.ok(await buckets.get('grants', grantOf('m1', 'a')))
  t.notOk(await buckets.get('grants', grantOf('m1', 'b')), 'the grant of the newer one is gone')
  t.match((await buckets.users('n3', 'bus'))?.find(({ module }) => module === 'm1'), { publish: [] })
  t.match(await buckets.get('takeins', 'm1'), { from: fp('b'), to: fp('a') })
})

t.test('a process that was killed before the agents answered: the next run asks them, though nothing that stands is behind', async (t) => {
  const on = await stage(t)
  const { buckets, nc, server, gateway } = on
  await buckets.holder('bus', 'n3', ['s1'])
  const agent = await broker(t, nc, { server: 's1' })
  await buckets.ready('m1', 'a', ['n1'])
  t.match((await post(on, 'm1')).json, { outcome: 'taken-in' })

  // Another key of the node: a new credential, and no grant is behind.
  agent.says = 'silent'
  agent.asked.length = 0
  await buckets.node('n1')
  const cut = post(on, 'm1').catch(() => undefined)
  await eventually('the agent is asked', () => agent.asked.length > 0)
  await gateway.kill()
  await cut
  const second = await startGateway(t, { natsUrl: server.url, ready: true, keys })
  agent.says = 'line 7'
  t.match((await post({ gateway: second }, 'm1')).json, { status: 500, step: 'busHolder', detail: /line 7/ })
  agent.says = 'applied'
  agent.asked.length = 0
  t.match((await post({ gateway: second }, 'm1')).json, { outcome: 'current' })
  t.same(agent.asked.map(({ revision }) => revision), [await buckets.meshRevision('compositions', 'n3.bus')])
  agent.asked.length = 0
  t.match((await post({ gateway: second }, 'm1')).json, { outcome: 'current' })
  t.same(agent.asked, [], 'once is enough')
})

t.test('bindings that go round fail the one that was bound last, which says how; the others are composed as before', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  const bind = (module: string, to: string) => buckets.put('inventory', `binding.${module}`, { url: { module: to, offer: 'url' } })
  for (const module of ['a', 'b', 'c']) await buckets.ready(module, 'a', ['n1'], { module, bound: { url: {} }, offers: { url: `of ${module}` } })
  await bind('a', 'b')
  await bind('c', 'a')
  for (const module of ['a', 'b', 'c']) await post(on, module)
  await bind('b', 'c')
  for (const module of ['a', 'c']) t.match((await post(on, module)).json, { fp: fp('a'), outcome: /^(composed|current|taken-in)$/ }, module)
  t.match((await post(on, 'b')).json, { status: 500, step: 'compose', detail: /its bindings go round, b → c → a → b, since binding\.b was written last/ })
  t.match(await buckets.composition('n1', 'a'), { bound: { url: 'of b' } })
  await bind('b', 'b')
  t.match((await post(on, 'b')).json, { status: 500, detail: /b → b/ }, 'to itself')
  await buckets.ready('d', 'a', ['n1'], { module: 'd', offers: { url: 'of d' } })
  await post(on, 'd')
  await bind('b', 'd')
  t.match((await post(on, 'b')).json, { outcome: 'composed', composed: ['n1'] })
  t.match(await buckets.composition('n1', 'b'), { bound: { url: 'of d' } }, 'two modules offer one name: the binding says whose')
})

t.test('a composition that is larger than the bus takes fails its own take-in, which says so, and not that of whoever offers the value', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  const half = 'x'.repeat(600 * 1024)
  await buckets.ready('db', 'a', ['n1'], { module: 'db', offers: { url: 'one' } })
  await buckets.put('inventory', 'binding.m1', { url: { module: 'db', offer: 'url' } })
  await buckets.ready('m1', 'a', ['n2'], { module: 'm1', config: { text: { default: half } }, bound: { url: {} } })
  for (const module of ['db', 'm1']) t.match((await post(on, module)).json, { outcome: 'taken-in' })
  await buckets.done('db', 'b', { module: 'db', offers: { url: half } })
  await buckets.trunk('db', 'b')
  t.match(await post(on, 'db'), { status: 200, json: { outcome: 'taken-in', composed: ['n1'], grant: true } })
  const refused = await post(on, 'm1')
  t.match(refused, { status: 500, json: { type: 'urn:mesh-gateway:problem:step-failed', step: 'compose', detail: /writing compositions n2\.m1: it is 12\d{5} bytes, and the bus takes messages of 1048576/ } })
  t.match(await buckets.composition('n2', 'm1'), { bound: { url: 'one' } }, 'it keeps what it has')
})
