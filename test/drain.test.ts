/** How a gateway goes down on SIGTERM: in which order, how soon, and what its clients notice (docs/watch.md). */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t from 'tap'
import { commitOf, fp, mesh } from './support/bus/buckets.js'
import { client } from './support/bus/client.js'
import { natsServer } from './support/bus/nats-server.js'
import { gatewayOnFixture } from './support/fixture.js'
import { balancer } from './support/fleet/balancer.js'
import { Getter, SocketWatcher, StreamWatcher } from './support/fleet/clients.js'
import { startGateway, type Gateway } from './support/gateway.js'
import { freePort, HOST, projectRoot, start } from './support/machine.js'
import { atEnd, type Owner } from './support/owner.js'
import { eventually, until } from './support/until.js'
import { bearer, request, responses } from './support/wire/bytes.js'
import { http } from './support/wire/http.js'
import { signers, svid } from './support/wire/signing.js'
import { sse } from './support/wire/sse.js'
import { ws } from './support/wire/websocket.js'

const keys = signers()
const token = svid(keys.ed, 'module/m1')
const operator = svid(keys.ed, 'operator/alice')
const unavailable = { status: 503, headers: { 'retry-after': /^\d+$/ }, json: { type: 'urn:mesh-gateway:problem:unavailable', detail: /going down/ } }

/** Sends SIGTERM and waits until /readyz shows it. `exit` rejects where it does not exit with 0 within DRAIN_MS. */
async function terminated (gateway: Gateway, drainMs: number): Promise<{ exit: Promise<void>, began: number }> {
  const began = Date.now()
  const exit = gateway.stop(drainMs)
  exit.catch(() => undefined)
  await eventually('it is not ready', async () => (await http(gateway.opsPort, 'GET', '/readyz')).status === 503)
  return { exit, began }
}

/** A connection that is kept, and all that came on it. */
async function kept (t: Owner, port: number, bytes = ''): Promise<{ socket: Socket, answers: () => ReturnType<typeof responses>, closed: () => boolean }> {
  const socket = connect(port, HOST).on('error', () => undefined)
  atEnd(t, () => socket.destroy())
  const came: Buffer[] = []
  socket.on('data', (data) => came.push(data))
  await once(socket, 'connect')
  socket.write(bytes)
  return { socket, answers: () => responses(Buffer.concat(came)), closed: () => socket.closed }
}

const get = (key: string) => request('GET', `/provision/config/${key}`, { Connection: 'keep-alive', ...bearer(token) })

t.test('at once it is not ready and begins nothing that lasts, while requests are answered and watches hear changes; then all are told', async (t) => {
  const { mesh: buckets, prov, gateway } = await gatewayOnFixture(t, { keys, env: { DRAIN_MS: '20000', ASK_TIMEOUT_MS: '10000' } })
  const { port } = gateway
  const socket = await ws(t, port, { token })
  await socket.watch('config', 'port')
  const stream = await sse(t, port, '/provision/config/port', { token })
  const connection = await kept(t, port, get('port'))
  await eventually('an answer on a connection that is kept', () => connection.answers().length === 1)
  prov.set('m1/config/slow', { value: 'slow', delay: 4000 })
  const slow = await kept(t, port, get('slow'))
  await eventually('it is asked', () => prov.askedOf('m1/config/slow') === 1)

  const { exit, began } = await terminated(gateway, 20_000)
  t.match(await http(port, 'GET', '/readyz'), { status: 503, headers: { 'retry-after': /\d/ }, json: { ready: false, bus: true, hearing: true } })
  t.match(await http(port, 'GET', '/livez'), { status: 200 })
  t.match(await http(port, 'GET', '/provision/config/port', { token }), { status: 200, body: '8080' }, 'a new connection is answered')
  t.match(await ws(t, port, { token }), unavailable)
  t.match(await sse(t, port, '/provision/config/port', { token }), unavailable)
  t.match(await http(port, 'POST', '/modules/m1/take-in', { token: operator }), unavailable)
  t.match(await http(port, 'PUT', '/modules/m1/config/port', { token: operator, headers: { 'Content-Type': 'application/json' }, body: '1' }), unavailable)
  t.equal(await buckets.entry('settings', 'm1'), undefined, 'a setting that would not be composed is not written')
  connection.socket.write(get('port'))
  await eventually('the kept connection has its answer', () => connection.answers().length === 2)
  t.match(connection.answers().map(({ status, headers }) => [status, headers.connection]), [[200, /keep-alive/], [200, 'close']])
  await eventually('and ends', connection.closed)
  prov.change('m1/config/port', { value: 8081 })
  t.match(await socket.note('provision.changed'), { params: { value: 8081 } })
  t.ok(await stream.until(({ json }) => json?.value === 8081))
  t.notOk(socket.closed || stream.closed, 'nobody was told yet')

  await socket.untilClosed(5000)
  t.ok(Date.now() - began >= 2000, 'a balancer had a tenth of DRAIN_MS to notice')
  t.equal(socket.closeCode, 1012)
  t.ok(await stream.untilClosed())
  t.ok(stream.retry !== undefined && stream.retry >= 500 && stream.retry <= 2500, `retry: ${stream.retry}`)
  t.notOk(gateway.ended)
  await exit
  t.match(slow.answers(), [{ status: 200, body: '"slow"' }], 'what was being asked has its answer, though the port was closed before')
})

t.test('what is half there, mute or not read holds it no longer than DRAIN_MS, a second signal changes nothing, and an answer is sent whole', async (t) => {
  const { prov, gateway } = await gatewayOnFixture(t, { keys, env: { DRAIN_MS: '6000', OPS_PORT: String(await freePort()) } })
  const { port } = gateway
  // More than the kernel holds for a connection that is not read.
  const big = 'x'.repeat(900_000)
  prov.set('m1/config/big', { value: big })
  await http(port, 'GET', '/provision/config/big', { token })
  const slow = await kept(t, port)
  slow.socket.pause()
  for (let n = 0; n < 10; n++) slow.socket.write(get('big'))
  const never = await kept(t, port)
  never.socket.pause()
  for (let n = 0; n < 10; n++) never.socket.write(get('big'))
  const idle = await kept(t, port, get('port'))
  const half = await kept(t, port, request('POST', '/modules/m1/take-in', { 'Content-Length': '10', 'Content-Type': 'application/json', ...bearer(operator) }))
  const silent = await kept(t, port)
  await eventually('one is idle', () => idle.answers().length === 1)
  const deaf = await Promise.all(Array.from({ length: 3 }, () => ws(t, port, { token, pong: false })))
  const mute = await ws(t, port, { token })
  mute.pause()

  const { exit, began } = await terminated(gateway, 6000)
  gateway.process.kill('SIGTERM')
  gateway.process.kill('SIGINT')
  await eventually('silent and idle ones are closed with the port', () => silent.closed() && idle.closed())
  for (const socket of deaf) {
    await socket.untilClosed()
    t.equal(socket.closeCode, 1012, 'told, and ended although it does not close')
  }
  await eventually('the port is closed', async () => (await http(port, 'GET', '/provision/config/port', { token })).status === 0)
  t.match([await http(gateway.opsPort, 'GET', '/readyz'), await http(gateway.opsPort, 'GET', '/livez')], [{ status: 503 }, { status: 200 }], 'probes are answered longer')
  slow.socket.resume()
  await eventually('its connection ends', slow.closed)
  t.same(slow.answers().map(({ status, body }) => [status, body.length]), Array(10).fill([200, big.length + 2]), 'with all that was asked answered, and whole')
  t.notOk(half.closed(), 'a request whose body is still coming has its time')
  await exit
  t.comment(`${Date.now() - began} ms`)
})

t.test('many connections are told one after the other, few at once', async (t) => {
  const { gateway } = await gatewayOnFixture(t, { keys, env: { DRAIN_MS: '3000' } })
  const sockets = await Promise.all(Array.from({ length: 200 }, () => ws(t, gateway.port, { token })))
  const told: number[] = []
  for (const { socket } of sockets) socket.once('close', () => told.push(Date.now()))
  const { exit, began } = await terminated(gateway, 3000)
  await exit
  t.comment(`${Date.now() - began} ms`)
  await eventually('all are closed', () => told.length === sockets.length)
  t.ok(sockets.every(({ closeCode }) => closeCode === 1012))
  const span = Math.max(...told) - Math.min(...told)
  t.ok(span >= 300, `200 clients within ${span} ms`)
  told.sort((a, b) => a - b)
  const most = Math.max(...told.map((from) => told.filter((at) => at >= from && at < from + 50).length))
  t.ok(most <= 100, `${most} of them within 50 ms`)
})

t.test('a rolling restart of three gateways behind a balancer: no request fails, no watcher misses the last value or goes back', async (t) => {
  const { url: natsUrl } = await natsServer(t)
  const buckets = await mesh(await client(t, natsUrl))
  const user = (letter: string) => letter + 'A'.repeat(55)
  const change = (value: number) => buckets.put('compositions', 'node-a.roll', {
    node: 'node-a', module: 'roll', fp: fp('a'), commit: commitOf('a'), config: { count: value }, bound: {}, secrets: [], credential: { user: user('U'), sealed: 'AA', by: user('X'), to: user('X') }
  })
  await change(0)
  start(t, process.execPath, ['dist/src/cli.js', 'provisioner'], {
    cwd: projectRoot, env: { PATH: process.env.PATH, NATS_URL: natsUrl, MESH_NODE: 'node-a', LOG_LEVEL: 'fatal' }, stdio: ['ignore', 'ignore', 'inherit']
  })
  const options = { natsUrl, keys, ready: true, env: { DRAIN_MS: '8000', LOG_LEVEL: 'warn' } }
  const ports = await Promise.all([freePort(), freePort(), freePort()])
  const gateways = await Promise.all(ports.map((port) => startGateway(t, { ...options, port })))
  const between = await balancer(t, ports)
  await eventually('all three are in', () => between.ready.length === 3)
  const where = { port: between.port, token: svid(keys.ed, 'module/roll'), key: 'count' }
  await eventually('the provisioner answers', async () => (await http(where.port, 'GET', '/provision/config/count', { token: where.token })).body === '0')
  const getters = Array.from({ length: 6 }, () => new Getter(t, where))
  const watchers = Array.from({ length: 60 }, (_, i) => i % 2 ? new SocketWatcher(t, where) : new StreamWatcher(t, where))
  const all = [...getters, ...watchers]
  atEnd(t, async () => {
    for (const one of all) one.ended = true
    await Promise.all(all.map(({ running }) => running))
  })
  await eventually('each watcher has a value', () => watchers.every(({ handed }) => handed.length > 0))

  let last = 0
  let restarting = true
  const changing = until(async () => {
    await change(++last)
    return !restarting
  }, 60_000, 100)
  for (const [i, gateway] of gateways.entries()) {
    const began = Date.now()
    await gateway.stop(8000)
    t.comment(`gateway ${i + 1} went down in ${Date.now() - began} ms`)
    gateways[i] = await startGateway(t, { ...options, port: gateway.port })
    await eventually('it is in again', () => between.ready.length === 3)
  }
  restarting = false
  await changing
  await change(++last)
  await eventually('each watcher has the last value', () => watchers.every(({ handed }) => handed.at(-1) === last), 10_000)
    .catch((error: Error) => t.fail(error.message, { missing: watchers.map(({ handed }) => handed.at(-1)).filter((value) => value !== last) }))
  t.same(getters.flatMap(({ failures }) => failures), [], 'no request failed')
  t.ok(getters.every(({ answered }) => answered > 100), `${getters.reduce((sum, { answered }) => sum + answered, 0)} answers`)
  t.same(watchers.filter(({ wentBack }) => wentBack !== undefined).map(({ handed, wentBack }) => [wentBack, handed]), [], 'nobody went back')
  const ends = new Map<string, number>()
  for (const how of watchers.flatMap(({ ends }) => ends)) ends.set(how, (ends.get(how) ?? 0) + 1)
  t.ok((ends.get('code 1012') ?? 0) >= 30 && (ends.get('retry') ?? 0) >= 30, 'each was told to come back')
  t.same([...ends.keys()].filter((how) => !['code 1012', 'retry', 'status 503'].includes(how)), [], 'and no connection ended otherwise')
  t.comment(`${getters.reduce((sum, { retried }) => sum + retried, 0)} retries on idle connections; ends: ${JSON.stringify([...ends])}`)
})
