/** The tests' own tools: what stands in for the world has to behave like it. */
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createLocalJWKSet, jwtVerify } from 'jose'
import t, { type Test } from 'tap'
import { WebSocketServer } from 'ws'
import { broker } from './support/bus/broker.js'
import { commitOf, fp, mesh } from './support/bus/buckets.js'
import { client, decode, decodeJson, encode } from './support/bus/client.js'
import { natsServer } from './support/bus/nats-server.js'
import { provisioner } from './support/bus/provisioner.js'
import { proxy } from './support/bus/proxy.js'
import { bucketSpy, spy } from './support/bus/spy.js'
import { Gateway } from './support/gateway.js'
import { HOST, freePort, start } from './support/machine.js'
import { atEnd } from './support/owner.js'
import { eventually, within } from './support/until.js'
import { request } from './support/wire/bytes.js'
import { frame, opcodes, text } from './support/wire/frames.js'
import { http, rawHttp } from './support/wire/http.js'
import { jwks, person, signers, svid } from './support/wire/signing.js'
import { sse } from './support/wire/sse.js'
import { OK_TOKENS, STRANGERS, tokens } from './support/wire/tokens.js'
import { ws } from './support/wire/websocket.js'

const keys = signers()

t.test('nats-server keeps its store across a kill, and says when it has read its configuration again', async (t) => {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const buckets = await mesh(nc)
  await buckets.trunk('m1', 'a')
  await server.kill()
  await server.start()
  const kept = await eventually('the trunk value after the restart', async () => {
    try { return await buckets.get('trunk', 'm1') } catch { return undefined }
  })
  t.same(kept, { fp: fp('a'), commit: commitOf('a') })

  server.configure('max_payload: 1000')
  await server.reload()
  server.configure('max_payload: "?"')
  await t.rejects(server.reload(), /Failed to reload/)

  const flushed = () => nc.flush().then(() => true)
  server.freeze()
  const waiting = flushed()
  t.equal(await within(waiting, 100), undefined, 'a frozen server answers nothing')
  server.thaw()
  t.equal(await waiting, true)
})

t.test('a proxy cuts, mends, and goes silent', async (t) => {
  const server = await natsServer(t)
  const between = await proxy(t, server.port)
  const nc = await client(t, between.url)
  const far = await client(t, server.url)
  const heard: string[] = []
  far.subscribe('word', { callback: (_, { data }) => heard.push(decode(data)) })
  await far.flush()

  between.cut()
  between.mend()
  await eventually('the client is back', async () => { nc.publish('word', encode('mended')); return heard.includes('mended') })
  t.ok(between.connections >= 2, 'a cut connection was made anew')

  between.blackhole()
  const sent = between.bytesUp
  nc.publish('word', encode('held'))
  await eventually('the word reached the proxy', () => between.bytesUp > sent)
  await far.flush()
  t.notOk(heard.includes('held'), 'nothing passes a black hole')
  between.release()
  await eventually('what was held comes out', () => heard.includes('held'))
})

t.test('the spies hear what was published, and of writes only those a bucket took', async (t) => {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  await mesh(nc)
  const all = await spy(t, nc)
  const writes = await bucketSpy(t, nc)
  const writer = (await mesh(await client(t, server.url), { create: false })).kv.inventory
  const first = await writer.create('module.m1', encode('{"module":"m1"}'))
  await t.rejects(writer.update('module.m1', encode('{"module":"lost"}'), first + 7), /wrong last sequence/)
  await writer.update('module.m1', encode('{"module":"m1","n":2}'), first)
  await writer.delete('module.m1')
  await eventually('three writes', () => writes.of('inventory', 'module.m1').length === 3)
  t.match(writes.writes, [
    { op: 'PUT', value: { module: 'm1' }, seq: first },
    { op: 'PUT', value: { module: 'm1', n: 2 } },
    { op: 'DEL' }
  ])
  t.equal(all.of('$KV.mesh_inventory.').length, 4, 'the refused one was said all the same')
})

t.test('the stand-in provisioner answers with a revision, refuses, lists, and says what moved', async (t) => {
  const server = await natsServer(t)
  const prov = await provisioner(t, await client(t, server.url), { epoch: 1000 })
  const nc = await client(t, server.url)
  const ask = (module: string, key: string) => nc.request(`mesh.provision.node-a.${module}.get`, encode(JSON.stringify({ kind: 'config', key })), { timeout: 2000 })
  prov.set('m1/config/port', { value: 8080 }).set('m1/config/off', { refused: 'not now' }).set('m1/config/raw', { raw: '1.0', rev: 7 })

  const port = await ask('m1', 'port')
  t.equal(decode(port.data), '8080')
  t.equal(port.headers?.get('Mesh-Revision'), '1000.4', 'of the module, whose last answer was set fourth')
  const off = await ask('m1', 'off')
  t.same([off.headers?.get('Nats-Service-Error-Code'), off.headers?.get('Nats-Service-Error'), off.data.length], ['403', 'not now', 0])
  t.equal((await ask('m1', 'a/b')).headers?.get('Nats-Service-Error-Code'), '404')
  const raw = await ask('m1', 'raw')
  t.same([decode(raw.data), raw.headers?.get('Mesh-Revision')], ['1.0', '1000.7'])
  t.same(decodeJson((await nc.request('mesh.provision.node-a.m1.list')).data), { config: ['port', 'off', 'raw'], bound: [] })
  t.equal(prov.askedOf('m1/config/port'), 1)

  const word = new Promise((resolve) => nc.subscribe('mesh.provision.node-a.*.changed', {
    max: 1, callback: (_, { subject, data, headers }) => resolve([subject, decode(data), headers?.get('Mesh-Revision')])
  }))
  await nc.flush()
  prov.change('m1/config/port', { value: 9 })
  t.same(await word, ['mesh.provision.node-a.m1.changed', '{"kind":"config","key":"port"}', '1000.5'])

  const agent = await broker(t, nc, { server: 'n3', says: 'no such user list' })
  const reply = await nc.request('mesh.broker.n3.applied', encode('{"revision":"1.2"}'))
  t.equal(reply.headers?.get('Nats-Service-Error'), 'no such user list')
  t.match(agent.asked, [{ revision: '1.2' }])
})

async function httpServer (t: Test, listener: RequestListener): Promise<{ port: number, server: ReturnType<typeof createServer> }> {
  const server = createServer(listener).listen(0, HOST)
  atEnd(t, () => { server.closeAllConnections(); server.close() })
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, server }
}

t.test('the HTTP client sends bytes as they are and shows every answer', async (t) => {
  const { port } = await httpServer(t, (req, res) => {
    const seen = req.rawHeaders.flatMap((one, i, all) => i % 2 === 0 && one === 'X-Twice' ? [all[i + 1]] : [])
    if (req.url === '/chunked') { res.write('one '); res.end('two') } else res.end(JSON.stringify({ url: req.url, seen }))
  })
  const answer = await http(port, 'GET', '/a%2fb?c', { headers: { 'X-Twice': ['1', '2'], 'X-None': null } })
  t.match(answer, { status: 200, json: { url: '/a%2fb?c', seen: ['1', '2'] }, closed: 'closed' })
  t.equal((await http(port, 'GET', '/chunked')).body, 'one two')
  t.match(await http(port, 'HEAD', '/x'), { status: 200, body: '' })

  const twice = request('GET', '/1', { Connection: 'keep-alive' }) + request('GET', '/2')
  const both = await rawHttp(port, [twice.slice(0, 30), twice.slice(30)], { gap: 5, count: 2 })
  t.match(both.responses.map((one) => one.body), [/"\/1"/, /"\/2"/])
  t.match(await rawHttp(port, 'no HTTP\r\n\r\n'), { responses: [{ status: 400 }] })
  t.match(await http(await freePort(), 'GET', '/'), { status: 0, closed: 'ECONNREFUSED' })
})

t.test('the event stream client shows events, comments and the end; an answer that is no stream, too', async (t) => {
  const { port } = await httpServer(t, (req, res) => {
    if (req.url !== '/events') { res.writeHead(404, { 'content-length': 2 }).end('{}'); return }
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('event: value\nid: 7\ndata: {"n"')
    res.write(':1}\n\n: still here\n\n')
    res.end('data: a\r\ndata: b\r\n\r\n')
  })
  const stream = await sse(t, port, '/events')
  t.equal(await stream.untilClosed(), true)
  t.match(stream.events(), [{ event: 'value', id: '7', json: { n: 1 } }, { event: 'message', data: 'a\nb' }])
  t.equal(stream.comments, 1)
  t.match(await sse(t, port, '/none'), { status: 404, json: {} })
})

t.test('the WebSocket client speaks first, in fragments, and wrongly, as told', async (t) => {
  const { port, server } = await httpServer(t, (_, res) => res.writeHead(426, { 'content-length': 0 }).end())
  new WebSocketServer({ server, path: '/watch' }).on('connection', (socket) => {
    socket.on('error', () => { /* the client's doing; close follows */ })
    socket.on('message', (data: Buffer) => {
      const { id, params } = JSON.parse(data.toString())
      socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'mesh/provision.changed', params }))
      socket.ping()
      socket.send(JSON.stringify({ jsonrpc: '2.0', id, result: { ...params, long: 'x'.repeat(70_000) } }))
    })
  })
  const client = await ws(t, port, { first: [text({ id: 'first', params: { key: 'a' } })] })
  t.equal(client.status, 101)
  t.ok(await client.until((one) => one.id === 'first'), 'the frame in the packet of the handshake was answered')
  client.send(Buffer.concat([frame(opcodes.text, '{"id":2,', { fin: false }), frame(opcodes.ping, 'p'), frame(opcodes.continuation, '"params":{"key":"b"}}')]))
  t.match(await client.until((one) => one.id === 2), { result: { key: 'b' } })
  t.match(await client.watch('config', 'c'), { result: { kind: 'config', key: 'c' } })
  t.same(client.changes().map((one) => one.key), ['a', 'b', 'c'])
  t.same(client.changes('b').length, 1)
  t.equal(client.pings, 3)

  client.send(frame(opcodes.text, '{}', { mask: false }))
  await client.untilClosed()
  t.equal(client.closeCode, 1002)
  t.match(await ws(t, port, { target: '/other' }), { status: 400 })
})

t.test('tokens verify, or do not, as their names say', async (t) => {
  const set = createLocalJWKSet(jwks(keys))
  const verifies = (token: string) => jwtVerify(token, set, { algorithms: ['EdDSA', 'ES256', 'ES384', 'RS256'], audience: 'mesh-gateway', clockTolerance: 5 })
  t.match(await verifies(svid(keys.ed, 'module/m1')), { payload: { sub: 'spiffe://mesh.local/module/m1' } })
  t.match(await verifies(person(keys.rs, 'alice', 'mesh:operate')), { payload: { scope: 'mesh:operate' } })
  const all = tokens(keys)
  // jose leaves the type, the subject, and an exp that is missing or endless to whoever calls it.
  const judgedElsewhere = [...STRANGERS, 'TYP_AT', 'TYP_OTHER', 'EXP_NONE', 'EXP_1E400', 'SUB_NONE', 'SUB_NUMBER', 'SUB_LIST']
  for (const [name, token] of Object.entries(all)) {
    if (OK_TOKENS.includes(name) || judgedElsewhere.includes(name)) await t.resolves(verifies(token), name)
    else await t.rejects(verifies(token), name)
  }
  t.same([...OK_TOKENS, ...STRANGERS].filter((name) => all[name] === undefined), [], 'each name stands for a token')
})

t.test('the end of a test fails it for what went wrong, and leaves nothing running', async (t) => {
  const handlers: Array<() => unknown> = []
  const done = async () => { for (const handler of handlers.reverse()) await handler() }
  const owner = { teardown: (handler: () => unknown) => handlers.push(handler) }
  const child = start(owner, process.execPath, ['-e', 'console.log("{\\"msg\\":\\"up\\"}"); setInterval(() => {}, 1000)'], { stdio: ['ignore', 'pipe', 'pipe'] })
  const gateway = new Gateway(child, 1, 1, keys)
  await eventually('its log', () => gateway.logged(/up/).length === 1)
  atEnd(owner, () => gateway.assertSound())
  atEnd(owner, () => { throw new Error('one handler throws') })
  await t.rejects(done(), /one handler throws/)
  t.equal(gateway.ended, true, 'the handlers after it ran')
  t.throws(() => gateway.assertSound(), /ended by itself/)
})
