/**
 * Hostile input of every kind, a little of each from a fixed seed; `npm run fuzz` tries it for longer (see test/fuzz). What it found
 * is tested by name below.
 */
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { connect } from 'node:net'
import t from 'tap'
import { renderUserList } from '../src/agents/user-list.js'
import { kinds } from './fuzz/kinds.js'
import { countsOf, fuzz } from './fuzz/run.js'
import { Stage } from './fuzz/stage.js'
import { HOST } from './support/machine.js'
import { until } from './support/until.js'
import { request, responses } from './support/wire/bytes.js'
import { http, rawHttp } from './support/wire/http.js'

const seed = 20_261
const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==' }
const open = { Connection: null }

t.test('hostile input does nothing', async (t) => {
  const stage = await Stage.open(t)
  for (const [name, kind] of Object.entries(kinds)) {
    await t.test(`${name}: ${kind.promise}`, async (t) => {
      const report = await fuzz(stage, kind, { seed, runs: kind.runs })
      t.equal(report.finding, undefined, `seed ${seed}: ${report.runs} inputs in ${report.ms} ms: ${countsOf(report.counts)}`)
      t.equal(report.runs, kind.runs, 'all were tried')
    })
  }
})

t.test('what it found', async (t) => {
  const stage = await Stage.open(t)
  const { port, tokens: { m1, operator } } = stage
  /** The statuses of what a connection is answered until it ends. */
  const statuses = async (...requests: string[]): Promise<number[]> => (await rawHttp(port, requests.join(''), { wait: 3000 })).responses.map(({ status }) => status)

  await t.test('an upgrade behind a request that is not answered yet ends neither the process nor the answer', async (t) => {
    const first = request('GET', '/provision/config/port', { ...open, Authorization: `Bearer ${m1}`, 'Cache-Control': 'no-cache' })
    for (const Upgrade of ['h2c', 'websocket']) {
      const { responses, closed } = await rawHttp(port, first + request('GET', '/watch', { ...upgrade, Upgrade }), { wait: 3000 })
      t.same(responses.map(({ status }) => status), [200], Upgrade)
      t.equal(closed, 'closed', 'the upgrade is to be asked again, on a connection of its own')
    }
    t.notOk(stage.gateway.ended)
  })

  await t.test('100 Continue stands before the answer that it belongs to, also behind another request', async (t) => {
    const post = request('POST', '/modules/m1/take-in', { ...open, Authorization: `Bearer ${m1}`, Expect: '100-continue', 'Content-Type': 'application/json' }, '{}')
    const live = request('GET', '/livez')
    await rawHttp(port, request('GET', '/provision/config/port', { Authorization: `Bearer ${m1}` }))
    const { raw } = await rawHttp(port, request('GET', '/livez', open) + post + live, { wait: 3000 })
    // Known before its turn to say 100 came, the answer stands alone, and the body that may not have been sent ends the connection.
    t.same(responses(raw).map(({ status }) => status), [200, 403])
    t.notMatch(raw.toString(), /HTTP\/1\.1 100/)
  })

  await t.test('what is no HTTP is answered behind what was asked before it, and never inside an answer', async (t) => {
    const asked = request('GET', '/provision/config/port', { ...open, Authorization: `Bearer ${m1}`, 'Cache-Control': 'no-cache' })
    t.same(await statuses(asked, 'GARBAGE\r\n\r\n'), [200, 400])
    t.same(await statuses(asked, asked, 'GARBAGE\r\n\r\n'), [200, 200, 400])
    t.same(await statuses(asked, request('POST', '/modules/m1/take-in', { ...open, Authorization: `Bearer ${operator}`, 'Transfer-Encoding': 'chunked' }, 'GARBAGE')), [200, 400])
    const stream = request('GET', '/provision/config/port', { ...open, Authorization: `Bearer ${m1}`, Accept: 'text/event-stream' })
    const { raw, closed } = await rawHttp(port, [stream, 'GARBAGE\r\n\r\n'], { gap: 200, wait: 3000 })
    t.match(raw.toString(), /event: value/)
    t.notMatch(raw.toString(), /400 Bad Request/)
    t.equal(closed, 'closed')
  })

  await t.test('a refused upgrade leaves no connection behind, whoever refused it', async (t) => {
    const handles = (): number => readdirSync(`/proc/${stage.gateway.process.pid}/fd`).length
    const before = handles()
    for (const target of [`/watch?${'x'.repeat(9000)}`, '/wat\u00e9ch', '/none', '/livez', '/watch']) {
      for (const method of ['GET', 'OPTIONS']) {
        const { closed } = await rawHttp(port, Buffer.from(request(method, target, { ...upgrade, Origin: 'https://dash.example' }), 'latin1'), { wait: 3000 })
        t.equal(closed, 'closed', `${method} ${target.slice(0, 20)}`)
      }
    }
    // A client that leaves a stream which came over an upgrade that was ignored.
    const socket = connect(port, HOST)
    socket.write(request('GET', '/provision/config/port', { Authorization: `Bearer ${m1}`, Accept: 'text/event-stream', Connection: 'Upgrade', Upgrade: 'h2c' }))
    await once(socket, 'data')
    socket.destroy()
    t.ok(await until(() => handles() <= before, 5000, 20), `${handles()} handles, ${before} before`)
  })

  await t.test('a key with a number sign that is not escaped is told so, and is not taken for the key before it', async (t) => {
    t.match(await http(port, 'GET', '/provision/config/port#x', { token: m1 }), { status: 400, json: { detail: /holds a #/ } })
    t.equal((await http(port, 'GET', '/provision/config/port%23x', { token: m1 })).status, 404)
  })

  await t.test('a method that only others know is 405 with Allow, not 404', async (t) => {
    for (const method of ['PROPFIND', 'M-SEARCH', 'MKCOL']) {
      t.match(await http(port, method, '/livez'), { status: 405, headers: { allow: 'GET, HEAD' } }, method)
      t.equal((await http(port, method, '/none', { token: operator })).status, 404, `${method} of nothing`)
    }
    t.same(await statuses(request('PURGE', '/watch')), [405])
  })

  t.test('a row of the user list whose module is an object with a toString of its own is left out, and costs nobody else anything', async (t) => {
    const rows = [JSON.parse('{"module":{"toString":1,"valueOf":1}}') as unknown]
    t.match(renderUserList('', rows).dropped, [{ module: 'a module without a name', why: /does not fit/ }])
  })

  await t.test('headers that are none make a broken answer, a word that is ignored, and a document like any other: the connection stays', async (t) => {
    const { prov, nc, server } = stage
    const bus = connect(server.port, HOST)
    t.teardown(() => bus.destroy())
    /** A message with a header block that no client library would write. */
    const say = (subject: string, body: string): void => {
      const head = '\r\n\nNats-Service-Error-Code: 403\r\n\r\n'
      bus.write(`HPUB ${subject} ${head.length} ${head.length + body.length}\r\n${head}${body}\r\n`)
    }
    bus.write('CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
    prov.stop()
    const subscription = nc.subscribe('mesh.provision.node-a.m2.get', { callback: (_error, { reply = '' }) => say(reply, '') })
    await nc.flush()
    t.match(await http(port, 'GET', '/provision/config/port', { token: stage.tokens.m2 }), { status: 502, json: { detail: /no Mesh-Revision/ } })
    say('mesh.provision.node-a.m1.changed', '{"kind":"config"}')
    say('$KV.mesh_inventory.assignment.m2', '{"nodes":[]}')
    say('$KV.mesh_settings.m2', '')
    subscription.unsubscribe()
    await prov.start()
    const taken = await until(async () => (await http(port, 'POST', '/modules/m2/take-in', { token: operator })).json?.outcome === 'unassigned', 5000)
    t.ok(taken ?? false, 'the document was read')
    t.same(stage.gateway.logged(/disconnect|the bus is away|reconnect/i), [])
    await stage.look()
  })
})
