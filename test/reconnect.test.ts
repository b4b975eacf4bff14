/** What a gateway and its clients see when the bus, or the provisioner behind it, goes and comes back. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createUser } from 'nkeys.js'
import t from 'tap'
import { bucketNames } from '../src/core/ports.js'
import { mesh } from './support/bus/buckets.js'
import { client } from './support/bus/client.js'
import { natsServer } from './support/bus/nats-server.js'
import { provisioner, StandInProvisioner } from './support/bus/provisioner.js'
import { proxy } from './support/bus/proxy.js'
import { fixture, gatewayOnFixture } from './support/fixture.js'
import { startGateway } from './support/gateway.js'
import { freePort, temporaryFolder } from './support/machine.js'
import { eventually, pause } from './support/until.js'
import { http } from './support/wire/http.js'
import { signers, svid } from './support/wire/signing.js'
import { ws, type WatchSocket } from './support/wire/websocket.js'

// Most of their time these wait for a timeout of somebody: together they wait once.
t.jobs = 4

const keys = signers()
const token = svid(keys.ed, 'module/m1')
const operator = svid(keys.ed, 'operator/alice')
const get = (port: number, key: string, headers = {}) => http(port, 'GET', `/provision/config/${key}`, { token, headers })
/** What was said of a key on a connection, in order: values, refusals, `stale`, `live`. */
const said = (of: WatchSocket, key: string): unknown[] => of.texts()
  .filter(({ method, params }) => method?.startsWith('mesh/provision.') && params.key === key)
  .map(({ method, params }) => method === 'mesh/provision.changed' ? params.value ?? params.refused : method?.slice('mesh/provision.'.length))
const ticks = (of: WatchSocket): boolean[] => of.notes('session.tick').map(({ params }) => params.live)

t.test('R1: a change while the gateway is cut from the bus', async (t) => {
  const { server, prov } = await fixture(t)
  const between = await proxy(t, server.port)
  const gateway = await startGateway(t, { natsUrl: between.url, keys, ready: true })
  prov.fallback = (name) => name.includes('many') ? { value: 1, delay: 5 } : undefined
  for (const key of ['moves', 'returns', 'stays']) prov.set(`m1/config/${key}`, { value: 1 })
  const [watcher, crowd] = await Promise.all([ws(t, gateway.port, { token }), ws(t, gateway.port, { token })])
  for (const key of ['moves', 'returns', 'stays']) await watcher.watch('config', key)
  await Promise.all(Array.from({ length: 300 }, (_, i) => crowd.watch('config', `many${i}`)))

  between.cut()
  await eventually('stale of each', () => ['moves', 'returns', 'stays'].every((key) => said(watcher, key).includes('stale')), 2000)
  await eventually('the tick', () => ticks(watcher).length > 0, 500)
  t.same(ticks(watcher), [false])
  prov.change('m1/config/moves', { value: 2 })
  for (const value of [2, 1]) prov.change('m1/config/returns', { value })
  for (const key of ['moves', 'never-asked']) {
    const answer = await get(gateway.port, key)
    t.match(answer, { status: 503, json: { type: 'urn:mesh-gateway:problem:unavailable' } })
    t.ok(Number(answer.headers['retry-after']) > 0)
    t.ok(answer.ms < 500, `quickly: ${answer.ms} ms`)
  }
  const last = await get(gateway.port, 'moves', { 'Cache-Control': 'stale-if-error=60' })
  t.match(last, { status: 200, body: '1', headers: { age: /^\d+$/ } }, 'or the last value, with its age')
  t.match(await http(gateway.port, 'GET', '/readyz'), { status: 503 })
  t.match(await http(gateway.port, 'GET', '/livez'), { status: 200 })

  const asked = prov.asked.length
  prov.maxInFlight = 0
  between.mend()
  await eventually('all is live again', () => ticks(watcher).at(-1) === true && ticks(crowd).at(-1) === true, 5000)
  t.same(['moves', 'returns', 'stays'].map((key) => said(watcher, key)), [['stale', 2], ['stale', 'live'], ['stale', 'live']])
  t.same(ticks(watcher), [false, true])
  t.equal(watcher.texts().at(-1)?.method, 'mesh/session.tick', 'the tick comes after them')
  const names = prov.asked.slice(asked).map(({ key }) => key)
  t.equal(names.length, 303, 'each distinct value was asked')
  t.equal(new Set(names).size, 303, 'once')
  t.ok(prov.maxInFlight <= 64, `${prov.maxInFlight} at a time`)
})

t.test('R1: a bus that swallows everything and says nothing', async (t) => {
  const { server, prov } = await fixture(t)
  const between = await proxy(t, server.port)
  const gateway = await startGateway(t, { natsUrl: between.url, keys, ready: true })
  for (const key of ['moves', 'stays']) prov.set(`m1/config/${key}`, { value: 1 })
  const watcher = await ws(t, gateway.port, { token })
  for (const key of ['moves', 'stays']) await watcher.watch('config', key)
  between.blackhole()
  prov.change('m1/config/moves', { value: 2 })
  await eventually('stale of each', () => ['moves', 'stays'].every((key) => said(watcher, key).includes('stale')), 10_000)
  t.same(ticks(watcher), [false])
  const answer = await get(gateway.port, 'moves')
  t.ok([503, 504].includes(answer.status) && answer.ms < 2500, `${answer.status} after ${answer.ms} ms`)
  await eventually('the gateway gives the connection up', () => gateway.logged(/the bus is away/).length > 0, 10_000)
  t.equal((await get(gateway.port, 'moves')).status, 503)
  const mended = Date.now()
  between.mend()
  await eventually('all is live again', () => ticks(watcher).at(-1) === true, 5000)
  t.same(['moves', 'stays'].map((key) => said(watcher, key)), [['stale', 2], ['stale', 'live']])
  t.same(ticks(watcher), [false, true])
  for (const key of ['moves', 'stays']) t.equal(prov.askedOf(`m1/config/${key}`, mended), 1)
})

t.test('R2: a change between the first value and the subscription is never lost, in 80 runs', async (t) => {
  const { server, prov, gateway } = await gatewayOnFixture(t, { keys })
  const fresh = await startGateway(t, { natsUrl: server.url, keys, ready: true })
  const run = async (i: number, port: number): Promise<void> => {
    const key = `run${i}`
    const name = `m1/config/${key}`
    const first = i % 4 === 3 ? { refused: 'at first' } : { value: 1 }
    prov.set(name, { ...first, delay: 300, snap: true })
    const watcher = await ws(t, port, { token })
    const wordAfter = i < 2 ? 100 : Math.random() * 350
    const id = watcher.request('provision.watch', { kind: 'config', key, keep: true })
    // When the change comes is what the case draws.
    await pause(wordAfter)
    prov.change(name, { value: 2 })
    const handed = (): unknown[] => watcher.texts().flatMap(({ id: of, result, method, params }) =>
      of === id ? [result?.value ?? result?.refused ?? 'error'] : method === 'mesh/provision.changed' ? [params.value ?? params.refused] : [])
    await eventually(`run ${i} ends in the newest`, () => handed().at(-1) === 2)
    await watcher.get('config', key)
    t.ok(['1,2', 'at first,2', '2'].includes(handed().join()), `run ${i}: ${handed().join()} with the word after ${Math.round(wordAfter)} ms`)
    watcher.end()
  }
  await run(0, gateway.port) // the first watch of each process
  await run(1, fresh.port)
  for (let batch = 2; batch < 82; batch += 20) {
    await Promise.all(Array.from({ length: 20 }, (_, i) => run(batch + i, i % 2 ? gateway.port : fresh.port)))
  }
})

t.test('R3: no bus at the start, and an outage longer than a client\'s usual patience', async (t) => {
  const door = await freePort()
  const gateway = await startGateway(t, { natsUrl: `nats://127.0.0.1:${door}`, keys })
  t.match(await http(gateway.port, 'GET', '/livez'), { status: 200 })
  const asks = async () => [await get(gateway.port, 'port'), await http(gateway.port, 'POST', '/modules/m1/take-in', { token: operator })]
  t.match(await http(gateway.port, 'GET', '/readyz'), { status: 503 })
  for (const answer of await asks()) {
    t.match(answer, { status: 503, json: { type: 'urn:mesh-gateway:problem:unavailable' }, headers: { 'retry-after': /^\d+$/ } })
  }
  const watcher = await ws(t, gateway.port, { token })
  t.match(await watcher.watch('config', 'port'), { error: { code: -32002, data: { status: 503 } } })
  t.match(await watcher.watch('config', 'port', { keep: true }), { result: { unavailable: true } })

  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const prov = await provisioner(t, nc)
  prov.set('m1/config/port', { value: 8080 })
  const between = await proxy(t, server.port, door)
  await gateway.ready(5000)
  await eventually('the kept watch has the value', () => watcher.changes('port').at(-1)?.value === 8080, 5000)
  t.match(await asks(), [{ status: 200, body: '8080' }, { status: 404, json: { type: 'urn:mesh-gateway:problem:not-held' } }])
  const jsm = await nc.jetstreamManager()
  const streams = await Promise.all(bucketNames.map((bucket) => jsm.streams.info(`KV_mesh_${bucket}`)))
  const created = streams.map((stream) => BigInt(Date.parse(stream.created.slice(0, 19) + 'Z')) * 1_000_000n + BigInt(stream.created.slice(20, -1).padEnd(9, '0')))
  t.same([...created].sort((a, b) => a < b ? -1 : 1), created, 'made in the order of the contract, takeins last')
  t.same(streams.map(({ config }) => config.allow_direct), bucketNames.map(() => false))
  t.same(streams.map(({ config }) => config.max_msgs_per_subject), [1, 1, 8, 8, 8, 8, 64])

  await server.kill()
  await eventually('the watch is stale', () => said(watcher, 'port').at(-1) === 'stale')
  const attempts = between.connections
  await eventually('fifteen attempts to come back', () => between.connections >= attempts + 15, 20_000)
  t.match(await http(gateway.port, 'GET', '/livez'), { status: 200 })
  for (const answer of await asks()) t.match(answer, { status: 503, headers: { 'retry-after': /^\d+$/ } })
  prov.answers.set('m1/config/port', { value: 9090 })
  await server.start()
  await gateway.ready(5000)
  await eventually('the present value, without a restart', () => said(watcher, 'port').at(-1) === 9090, 5000)
  t.match(await asks(), [{ status: 200, body: '9090' }, { status: 404 }])
})

t.test('nats-server killed and started again under watches: they converge', async (t) => {
  const { server, prov, gateway } = await gatewayOnFixture(t, { keys })
  const watcher = await ws(t, gateway.port, { token })
  prov.set('m1/config/a', { value: 0 }).set('m1/config/b', { value: 0 })
  for (const key of ['a', 'b']) await watcher.watch('config', key)
  for (let n = 1; n <= 4; n++) {
    await server.kill()
    prov.answers.set('m1/config/a', { value: n })
    if (n % 2 === 0) prov.answers.set('m1/config/b', n % 4 ? { refused: `r${n}` } : { value: n })
    await server.start()
    await eventually(`the value of restart ${n}`, () => watcher.changes('a').at(-1)?.value === n && ticks(watcher).at(-1) === true, 8000)
  }
  t.same(watcher.changes('a').map(({ value }) => value), [1, 2, 3, 4])
  t.same(watcher.changes('b').map(({ value, refused }) => value ?? refused), ['r2', 4])
  t.equal((await get(gateway.port, 'a')).body, '4')
})

t.test('a provisioner that ends without a word makes its watches stale; back, each says how it stands', async (t) => {
  const { prov, gateway } = await gatewayOnFixture(t, { keys })
  const watcher = await ws(t, gateway.port, { token })
  prov.set('m1/config/a', { value: 1 }).set('m1/config/b', { value: 1 })
  for (const key of ['a', 'b']) await watcher.watch('config', key)
  prov.stop()
  await eventually('stale of each', () => ['a', 'b'].every((key) => said(watcher, key).includes('stale')), 10_000)
  t.same(ticks(watcher), [false])
  t.match(await get(gateway.port, 'a'), { status: 503, headers: { 'retry-after': /^\d+$/ }, json: { detail: /nobody answers/ } })
  t.match(await http(gateway.port, 'GET', '/readyz'), { status: 200 }, 'the gateway itself is ready')
  prov.set('m1/config/a', { value: 2 })
  await prov.start()
  await eventually('all is live', () => ticks(watcher).at(-1) === true, 5000)
  t.same(['a', 'b'].map((key) => said(watcher, key)), [['stale', 2], ['stale', 'live']])

  // Restarted so quickly that nobody could have noticed, but for what it says when it comes up.
  prov.stop()
  prov.set('m1/config/b', { value: 3 })
  const asked = prov.asked.length
  await prov.start()
  for (const module of ['m1', 'm2']) for (const kind of ['config', 'bound']) prov.tell(module, kind)
  await eventually('the change', () => watcher.changes('b').length > 0)
  t.same(['a', 'b'].map((key) => said(watcher, key)), [['stale', 2], ['stale', 'live', 3]], 'and nothing of the other')
  t.same(prov.asked.slice(asked).map(({ key }) => key).sort(), ['a', 'b'], 'each value was asked once')
})

t.test('a permission change that ends a subscription while the connection stays', async (t) => {
  const user = createUser()
  const users = (permissions: string) => `authorization { users = [
    { user: test, password: test }
    { nkey: ${user.getPublicKey()}, permissions: { publish: ">", subscribe: ${permissions} } }
  ] }`
  const open = users('">"')
  const server = await natsServer(t, { config: open })
  const nc = await client(t, server.url, { user: 'test', pass: 'test' })
  await mesh(nc)
  const prov = await provisioner(t, nc)
  prov.set('m1/config/a', { value: 1 }).set('m1/config/b', { value: 1 })
  const seed = join(temporaryFolder(t), 'gateway.nk')
  writeFileSync(seed, user.getSeed())
  const gateway = await startGateway(t, { natsUrl: server.url, keys, ready: true, env: { NATS_NKEY_SEED_FILE: seed } })
  const watcher = await ws(t, gateway.port, { token })
  for (const key of ['a', 'b']) await watcher.watch('config', key)

  server.configure(users('{ deny: ["mesh.provision.*.*.changed"] }'))
  await server.reload()
  await eventually('stale of each', () => ['a', 'b'].every((key) => said(watcher, key).at(-1) === 'stale'))
  t.match(await http(gateway.port, 'GET', '/readyz'), { status: 503, json: { bus: true, hearing: false } })
  prov.change('m1/config/a', { value: 2 })
  for (const value of [2, 3]) {
    prov.set('m1/config/a', { value })
    t.match(await get(gateway.port, 'a'), { status: 200, body: String(value) }, 'a get is asked, and answered')
  }
  t.match(await watcher.watch('config', 'port', { keep: true }), { result: { refused: /./ } })
  await eventually('a new watch is told, too', () => said(watcher, 'port').includes('stale'))
  await watcher.unwatch('config', 'port')
  server.configure(open)
  await server.reload()
  await eventually('all is live', () => ticks(watcher).at(-1) === true)
  t.same(['a', 'b'].map((key) => said(watcher, key)), [['stale', 3], ['stale', 'live']])

  server.configure(users('{ deny: ["_INBOX.>"] }'))
  await server.reload()
  prov.change('m1/config/a', { value: 4 })
  await eventually('an answer that cannot be heard makes the value stale', () => said(watcher, 'a').at(-1) === 'stale')
  t.match(await get(gateway.port, 'a'), { status: 503 })
  server.configure(open)
  await server.reload()
  await eventually('the value, once answers are heard again', () => said(watcher, 'a').at(-1) === 4)
  t.match(await get(gateway.port, 'a'), { status: 200, body: '4' })
  t.same(gateway.logged(/the bus is away/), [], 'all of it on one connection')
})

t.test('two provisioners of which one lags: nothing goes back', async (t) => {
  const { server, prov, gateway } = await gatewayOnFixture(t, { keys })
  const behind = new StandInProvisioner(await client(t, server.url), { epoch: prov.epoch })
  behind.answers.set('m1/config/a', { value: 0, rev: 3 })
  prov.set('m1/config/a', { value: 0, rev: 100 })
  const watcher = await ws(t, gateway.port, { token })
  await watcher.watch('config', 'a')
  await behind.start()
  t.teardown(() => behind.stop())
  for (let value = 1; value <= 15; value++) {
    prov.change('m1/config/a', { value, rev: 100 + value })
    if (value % 3 === 0) behind.tell('m1', 'config', 'a', `${prov.epoch}.3`)
    await eventually(`the change to ${value}`, () => watcher.changes('a').at(-1)?.value === value)
    t.equal((await get(gateway.port, 'a')).body, String(value))
    t.equal((await get(gateway.port, 'a', { 'Cache-Control': 'no-cache' })).body, String(value))
  }
  t.same(watcher.changes('a').map(({ value }) => value), Array.from({ length: 15 }, (_, i) => i + 1))
  behind.answers.set('m1/config/a', { value: 15, rev: 115 })
  behind.tell('m1', 'config', 'a', `${prov.epoch}.115`)
  await watcher.get('config', 'a')
  t.equal(watcher.changes('a').length, 15, 'caught up, it is no news')
  t.ok(behind.asked.length > 0, 'the one that lags was asked')
  t.same(gateway.logged(/rewound/), [])
})

t.test('a bucket that was rewound: what still stands after 5 s is handed, and logged', async (t) => {
  const { prov, gateway } = await gatewayOnFixture(t, { keys })
  const watcher = await ws(t, gateway.port, { token })
  prov.set('m1/config/a', { value: 'before', rev: 50 }).set('m1/config/b', { value: 'same', rev: 50 })
  for (const key of ['a', 'b']) await watcher.watch('config', key)
  const began = Date.now()
  prov.change('m1/config/a', { value: 'restored', rev: 10 })
  prov.change('m1/config/b', { value: 'same', rev: 10 })
  await eventually('stale', () => said(watcher, 'a').includes('stale') && said(watcher, 'b').includes('stale'), 3000)
  const late = await get(gateway.port, 'a')
  t.ok([504, 200].includes(late.status))
  await eventually('the restored value', () => said(watcher, 'a').at(-1) === 'restored' && said(watcher, 'b').at(-1) === 'live', 6000)
  t.ok(Date.now() - began >= 5000, `after ${Date.now() - began} ms`)
  t.same(['a', 'b'].map((key) => said(watcher, key)), [['stale', 'restored'], ['stale', 'live']])
  t.ok(gateway.logged(/rewound/).length > 0)
  t.notMatch(JSON.stringify(gateway.log), 'restored"', 'without the value')
  prov.change('m1/config/a', { value: 'onward', rev: 11 })
  await eventually('it counts on from there', () => said(watcher, 'a').at(-1) === 'onward')
})
