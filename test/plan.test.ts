/** The plan of a take-in, a POST that carries out one plan alone, and one that waits for a build (DESIGN section 6; A4). */
import t from 'tap'
import { fp } from './support/bus/buckets.js'
import { startGateway } from './support/gateway.js'
import { fixture } from './support/fixture.js'
import { freePort } from './support/machine.js'
import { keys, stage, type Stage } from './support/take-in.js'
import { eventually } from './support/until.js'
import { http, type HttpOptions } from './support/wire/http.js'
import { svid } from './support/wire/signing.js'
import { ws } from './support/wire/websocket.js'

const at = '/modules/m1/take-in'
const as = (who: string): string => svid(keys.ed, who)
const look = ({ gateway }: Pick<Stage, 'gateway'>, who = 'operator/alice', headers: HttpOptions['headers'] = {}) => http(gateway.port, 'GET', at, { token: as(who), headers })
const take = ({ gateway }: Pick<Stage, 'gateway'>, headers: HttpOptions['headers'] = {}) => http(gateway.port, 'POST', at, { token: as('operator/alice'), headers, wait: 30_000 })

t.test('A4: the plan says each step and how each composition would differ, writes nothing, and can be carried out alone', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  t.match(await look(on), { status: 404, json: { type: 'urn:mesh-gateway:problem:not-held' } })
  await buckets.holder('bus', 'n3')
  await buckets.ready('m1', 'a', ['n1', 'n2'], { module: 'm1', config: { port: { default: 8080 } }, permissions: { publish: ['m1.>'] } })
  const before = spy.writes.length
  const plan = await look(on)
  t.match(plan, { status: 200, headers: { etag: /^"[^"]+"$/, 'cache-control': 'private, no-cache' } })
  t.match(plan.json, {
    module: 'm1',
    outcome: 'taken-in',
    fp: fp('a'),
    registered: true,
    composed: ['n1', 'n2', 'n3'],
    grant: true,
    said: /^would be taken-in: /,
    grants: { written: [fp('a')], deleted: [] }
  })
  t.same(plan.json.steps.map(({ step }: { step: string }) => step), ['held', 'trunk', 'registeredAt', 'takeIn', 'nodesOf', 'compose', 'busHolder', 'grants'])
  const [n1, n2, holder] = plan.json.compositions
  t.match([n1, n2], [{ node: 'n1', module: 'm1', credential: 'new' }, { node: 'n2', module: 'm1', credential: 'new' }])
  t.match(n1.changes.find(({ path }: { path: string }) => path === '/config/port'), { change: 'added', is: 8080 })
  t.match(holder, { node: 'n3', module: 'bus' })
  t.match(JSON.stringify(holder.changes), /"path":"\/users\/m1\/publish","change":"added","is":\["m1.>"\]/)
  t.notMatch(plan.body, /sealed|"U[A-Z2-7]{20}/, 'nothing of a credential')
  t.equal((await look(on, 'reader/grafana')).headers.etag, plan.headers.etag, 'the same plan reads the same, to a reader as well')
  t.match(await look(on, 'reader/grafana', { 'If-None-Match': plan.headers.etag }), { status: 304, body: '' })
  t.equal((await look(on, 'module/m1')).status, 403)
  t.equal(spy.writes.length, before, 'no write, not even a record')

  t.match(await take(on, { 'If-Match': '"another"' }), { status: 412, json: { type: 'urn:mesh-gateway:problem:plan-changed', etag: plan.headers.etag, plan: { outcome: 'taken-in' } } })
  await buckets.put('settings', 'm1', { port: 1 })
  t.equal((await take(on, { 'If-Match': plan.headers.etag })).status, 412, 'one that is old by now')
  t.equal(spy.of('inventory', 'module.m1').filter(({ value }) => value.fp === fp('a')).length, 0, 'nothing was done')
  const now = (await look(on)).headers.etag
  t.not(now, plan.headers.etag)
  t.match((await take(on, { 'If-Match': `"x", ${now}` })).json, { outcome: 'taken-in', composed: ['n1', 'n2', 'n3'], grant: true })
  t.match((await look(on)).json, { outcome: 'current', composed: [], compositions: [], grant: false, grants: { written: [], deleted: [] } })
  t.match((await take(on, { 'If-Match': '*' })).json, { outcome: 'current' })

  await buckets.trunk('m1', 'b')
  await buckets.put('builds', `done.m1.${fp('b')}`, 'rubbish')
  t.match((await look(on)).json, { outcome: 'step-failed', said: /^the step takeIn failed: builds done\.m1\./ }, 'a step that would fail says so')
})

t.test('A4: Prefer: wait holds a POST until the build came and was taken in, or for as long as it says', async (t) => {
  for (const mode of ['manual', 'auto']) {
    const on = await stage(t, { env: { TAKE_IN: mode } })
    const { buckets } = on
    await buckets.hold('m1')
    await buckets.assign('m1', ['n1'])
    await buckets.trunk('m1', 'a')
    const short = await take(on, { Prefer: 'wait=1' })
    t.match(short, { status: 202, json: { outcome: 'waiting', fp: fp('a') } }, mode)
    t.ok(short.ms >= 950 && short.ms < 4000, `${short.ms} ms`)
    const waiting = take(on, { Prefer: 'respond-async, wait=20' })
    const other = take(on)
    t.equal((await other).status, 202, 'one that does not wait is not held up')
    await buckets.done('m1', 'a')
    const taken = await waiting
    t.match(taken, { status: 200, json: { outcome: mode === 'manual' ? 'taken-in' : /taken-in|current/, fp: fp('a') } })
    t.ok(taken.ms < 15_000)
    await on.gateway.stop()
  }
})

t.test('OPS_PORT moves health to a port of its own', async (t) => {
  const { server } = await fixture(t)
  const gateway = await startGateway(t, { natsUrl: server.url, keys, ready: true, env: { OPS_PORT: String(await freePort()) } })
  const { opsPort, port } = gateway
  t.not(opsPort, port)
  for (const path of ['/livez', '/readyz']) {
    t.equal((await http(opsPort, 'GET', path)).status, 200)
    t.match(await http(port, 'GET', path), { status: 404, json: { type: 'urn:mesh-gateway:problem:not-found' } })
  }
  t.match(await http(opsPort, 'GET', '/provision/config/port', { token: as('module/m1') }), { status: 404 }, 'and nothing else is there')
})

t.test('RATE_LIMIT: a principal is told to wait, its sockets are closed with 4429, and nobody else is touched', async (t) => {
  const { server } = await fixture(t)
  const gateway = await startGateway(t, { natsUrl: server.url, keys, ready: true, env: { RATE_LIMIT: '20' } })
  const get = (module: string) => http(gateway.port, 'GET', '/provision/config/port', { token: as(`module/${module}`) })
  const answers = await Promise.all(Array.from({ length: 60 }, () => get('m1')))
  const refused = answers.filter(({ status }) => status === 429)
  t.ok(refused.length > 10, `${refused.length} refused`)
  t.match(refused[0], { headers: { 'retry-after': /^\d+$/ }, json: { type: 'urn:mesh-gateway:problem:too-many-requests' } })
  t.equal((await get('m2')).status, 200)
  await eventually('m1 may again', async () => (await get('m1')).status === 200)
  const socket = await eventually('a socket opens', async () => { const one = await ws(t, gateway.port, { token: as('module/m2') }); return one.status === 101 && one })
  for (let n = 0; n < 60; n++) socket.request('provision.get', { kind: 'config', key: 'port' })
  t.ok(await socket.untilClosed())
  t.equal(socket.closeCode, 4429)
})
