/** Limits, each told to the client that it stops (DESIGN sections 6 and 7). */
import { writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { buildApp } from '../src/app.js'
import { loadConfig } from '../src/config.js'
import type { Core } from '../src/core/core.js'
import { limits } from '../src/core/limits.js'
import { Allowance } from '../src/http/allowance.js'
import { Failures, networkOf } from '../src/http/failures.js'
import { Places } from '../src/http/places.js'
import { createIdentity } from '../src/identity/identity.js'
import { gatewayOnFixture } from './support/fixture.js'
import { HandHeld } from './support/hand-held.js'
import { HOST, temporaryFolder } from './support/machine.js'
import { eventually, until } from './support/until.js'
import { bearer, request, type HttpAnswer } from './support/wire/bytes.js'
import { frame, opcodes, rpc, text } from './support/wire/frames.js'
import { http, rawHttp } from './support/wire/http.js'
import { jwks, signers, svid } from './support/wire/signing.js'
import { ws } from './support/wire/websocket.js'

const keys = signers()
const token = svid(keys.ed, 'module/m1')
const target = '/provision/config/port'

t.test('a gateway among clients that ask too much of it', async (t) => {
  const { gateway: { port } } = await gatewayOnFixture(t, { keys })
  // Begun before all else, since it takes as long as the limit is.
  const slow = Object.entries({
    'half a head': `GET ${target} HTTP/1.1\r\nHost: x\r\nX-Slow: `,
    'half a body': 'POST /modules/m1/take-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n' +
      `Authorization: Bearer ${svid(keys.ed, 'operator/alice')}\r\n\r\n{"rea`
  }).map(([what, bytes]) => ({ what, exchange: rawHttp(port, bytes, { wait: limits.requestMs + 10_000 }) }))

  await t.test('bad credentials of an address: 401 until there are too many, then 429 and the end of the connection; a good one always passes', async (t) => {
    const bad = request('GET', target, { Connection: 'keep-alive', ...bearer(`${token.slice(0, -4)}AAAA`) })
    const none = request('GET', target, { Connection: 'keep-alive' })
    const rest = await rawHttp(port, Array.from({ length: 20 }, () => none.repeat(50)), { count: 1000, wait: 20_000 })
    t.same(new Set(rest.responses.map(({ status }) => status)), new Set([401]), 'a request without any credential is not counted')

    // Not more at once, since those of one connection are answered in order but judged as they come.
    const some = async () => await rawHttp(port, bad.repeat(50), { count: 50, wait: 20_000 })
    const answers: HttpAnswer[] = []
    let refused = 0
    let closed: string | undefined
    while (refused === answers.length && refused < 2 * limits.failedAuthentications) {
      const exchange = await some()
      answers.push(...exchange.responses)
      refused = answers.filter(({ status }) => status === 401).length
      closed = exchange.closed
    }
    t.ok(refused >= limits.failedAuthentications - 50 && refused < 2 * limits.failedAuthentications, `${refused} times 401`)
    t.match(answers.at(-1), {
      status: 429, headers: { 'retry-after': /^\d+$/, connection: 'close', 'content-type': /problem/ }, body: /too-many-requests/
    })
    t.equal(answers.length, refused + 1)
    t.equal(closed, 'closed', 'the connection ended')

    t.equal((await http(port, 'GET', target, { token })).status, 200)
    const spent = await until(async () => (await ws(t, port, { token: token.slice(0, -5) })).status === 429, 10_000, 0)
    t.ok(spent, 'an upgrade is refused likewise')
    t.equal((await ws(t, port, { token })).status, 101)
  })

  await t.test('messages of one connection: 4429, and the others go on', async (t) => {
    const other = await ws(t, port, { token })
    for (const [what, one] of Object.entries({
      messages: text(rpc('provision.unwatch', { kind: 'config', key: 'port' }, 1)),
      'messages without an id': text(rpc('provision.get', { kind: 'config', key: 'port' }))
    })) {
      const client = await ws(t, port, { token })
      const some = Buffer.concat(Array.from({ length: 1000 }, () => one))
      for (let i = 0; i < 2 * limits.messagesAtOnce / 1000 && !client.closed; i++) client.send(some)
      t.ok(await client.untilClosed(15_000), what)
      t.equal(client.closeCode, 4429, what)
    }
    // Nobody asked for these, and a client that does not stop when it is told is cut off.
    for (const [what, code, first] of [['pongs', 4429, Buffer.alloc(0)], ['pongs after a frame that ends it', 1003, frame(opcodes.binary, 'x')]] as const) {
      const ponging = await ws(t, port, { token })
      const pongs = Buffer.concat(Array.from({ length: 1000 }, () => frame(opcodes.pong, '')))
      ponging.send(first)
      let sent = 0
      while (!ponging.closed && sent++ < 20_000) {
        ponging.send(pongs)
        await until(() => ponging.closed, 1, 0)
      }
      t.ok(ponging.closed, `${what}, ${sent} thousand`)
      t.equal(ponging.closeCode, code, what)
    }
    // A few at a time: more than that at once ends a connection by itself.
    const pinging = await ws(t, port, { token })
    const pings = Buffer.concat(Array.from({ length: 40 }, () => frame(opcodes.ping, 'x')))
    let rounds = 0
    while (!pinging.closed && pinging.closeCode === undefined && rounds++ < 3000) {
      const answers = pinging.texts().length
      pinging.send(pings)
      pinging.request('provision.unwatch', { kind: 'config', key: 'port' })
      await until(() => pinging.closed || pinging.texts().length > answers, 2000, 0)
    }
    t.equal(pinging.closeCode, 4429, `pings, in ${rounds} rounds`)
    t.match(await other.watch('config', 'port'), { result: { value: 8080 } })
  })

  await t.test('headers that are too large are answered with what is wrong', async (t) => {
    const { responses: [answer], closed } = await rawHttp(port, request('GET', target, { ...bearer(token), 'X-Large': 'x'.repeat(17_000) }))
    t.match(answer, { status: 400, headers: { 'content-type': /problem/, connection: 'close' }, body: /headers are larger than 16 KiB/ })
    t.ok(closed !== undefined)
    const many = Object.fromEntries(Array.from({ length: 1500 }, (_, i) => [`X-${i}`, 'some text']))
    t.match((await rawHttp(port, request('GET', target, { ...bearer(token), ...many }))).responses[0], { status: 400, body: /headers are larger/ })
  })

  await t.test('a request that does not come whole in time is answered so, and its connection ends', async (t) => {
    for (const { what, exchange } of slow) {
      const { responses: [answer], closed, ms } = await exchange
      t.match(answer, { status: 400, body: /did not come whole in time/ }, what)
      t.ok(closed !== undefined, what)
      t.ok(ms >= limits.requestMs - 100 && ms < limits.requestMs + 5000, `${what}: after ${ms} ms`)
    }
  })
})

t.test('watches of a module over all its connections: -32003 to the one too many, and an end gives its places back', async (t) => {
  const jwksFile = join(temporaryFolder(t), 'jwks.json')
  writeFileSync(jwksFile, JSON.stringify(jwks(keys)))
  const config = loadConfig({ AUTH_JWKS: jwksFile })
  const mesh = new HandHeld()
  mesh.auto = (question) => question.value(1)
  const app = await buildApp({ core: { view: mesh.view } as unknown as Core, config, identity: await createIdentity(config) })
  t.teardown(async () => await app.close())
  await app.listen({ host: HOST, port: 0 })
  const { port } = app.server.address() as AddressInfo
  // As if the module watched almost all it may elsewhere.
  for (let i = 0; i < limits.watchesPerModule - 3; i++) app.sessions.watches.take('m1')

  const one = await ws(t, port, { token })
  const another = await ws(t, port, { token })
  t.match([await one.watch('config', 'a'), await one.watch('config', 'b'), await another.watch('config', 'a')], Array(3).fill({ result: { value: 1 } }))
  const refused = await another.watch('config', 'c')
  t.match(refused, { error: { code: -32003, message: /^the module has 100000 watches/, data: { status: 429 } } })
  t.match(await another.watch('config', 'a'), { result: { value: 1 } }, 'a second watch of the same value takes no place')
  t.match(await (await ws(t, port, { token: svid(keys.ed, 'module/m2') })).watch('config', 'a'), { result: { value: 1 } }, 'another module has its own')
  await another.unwatch('config', 'a')
  await another.unwatch('config', 'a')
  t.match(await another.watch('config', 'c'), { result: { value: 1 } }, 'an unwatch gives one back')
  t.match(await another.watch('config', 'd'), { error: { code: -32003 } }, 'and no more than one')
  one.end()
  await eventually('the connection is gone', () => app.sessions.size === 2)
  t.match([await another.watch('config', 'd'), await another.watch('config', 'e')], Array(2).fill({ result: { value: 1 } }))
  t.match(await another.watch('config', 'f'), { error: { code: -32003 } })
  await app.sessions.drain(limits.drainGraceMs)
})

t.test('requests that are sent ahead of their answers: a few are begun, the others wait for their turn, and far too many end the connection', async (t) => {
  const jwksFile = join(temporaryFolder(t), 'jwks.json')
  writeFileSync(jwksFile, JSON.stringify(jwks(keys)))
  const config = loadConfig({ AUTH_JWKS: jwksFile })
  const mesh = new HandHeld()
  const app = await buildApp({ core: { view: mesh.view } as unknown as Core, config, identity: await createIdentity(config) })
  t.teardown(async () => await app.close())
  await app.listen({ host: HOST, port: 0 })
  const { port } = app.server.address() as AddressInfo
  const asked = (key: string, count: number): string =>
    Array.from({ length: count }, (_, i) => request('GET', `/provision/config/${key}${i}`, { Connection: 'keep-alive', ...bearer(token) })).join('')

  const count = 40
  const exchange = rawHttp(port, asked('k', count), { count, wait: 10_000 })
  await eventually('those are asked that may be', () => mesh.questions.length === 1 + limits.answersAhead)
  mesh.questions[1]?.value('1')
  await (await ws(t, port, { token })).call('provision.unwatch', { kind: 'config', key: 'k' })
  t.equal(mesh.questions.length, 1 + limits.answersAhead, 'no more of them while the first is not answered')
  mesh.auto = (question) => question.value(question.name.key)
  for (const question of mesh.questions) if (!question.answered) question.value(question.name.key)
  const { responses } = await exchange
  t.same(responses.map(({ body }) => body), Array.from({ length: count }, (_, i) => i === 1 ? '"1"' : `"k${i}"`), 'each has its answer, in order')

  mesh.auto = undefined
  const flood = await rawHttp(port, asked('none', 2 * limits.requestsWaiting), { wait: 10_000 })
  t.match(flood, { responses: [], closed: /./ })

  // Nothing moves on a connection whose answer is not read.
  t.equal(app.server.timeout, limits.stuckMs)
  app.server.timeout = 100
  t.match(await rawHttp(port, request('GET', '/provision/config/stuck', { Connection: 'keep-alive', ...bearer(token) }), { wait: 10_000 }), { closed: 'closed' })
  await app.sessions.drain(limits.drainGraceMs)
})

t.test('an allowance fills again as time goes by, and never beyond what may come at once', async (t) => {
  const allowance = new Allowance(2, 4, 0)
  const takes = (now: number, times: number) => Array.from({ length: times }, () => allowance.take(now) === undefined).filter(Boolean).length
  t.equal(takes(0, 10), 4)
  t.equal(allowance.take(0), 1, 'seconds to wait')
  t.equal(takes(1000, 10), 2)
  t.equal(takes(100_000, 10), 4)
  t.equal(takes(50_000, 10), 0, 'a clock that is set back gives nothing')
  t.equal(takes(51_000, 10), 2)
})

t.test('addresses count by themselves in IPv4, by their network in IPv6, and no more of them than the limit', async (t) => {
  for (const [address, network] of Object.entries({
    '10.0.0.1': '10.0.0.1',
    '::ffff:10.0.0.1': '10.0.0.1',
    '::1': '0:0:0:0::/64',
    '2001:db8::1': '2001:db8:0:0::/64',
    '2001:0DB8:0:0:ffff::': '2001:db8:0:0::/64',
    '2001:db8:0:1::1': '2001:db8:0:1::/64',
    '2001:db8:1:2:3:4:5:6': '2001:db8:1:2::/64',
    'fe80::1%eth0': 'fe80:0:0:0::/64',
    '64:ff9b::10.0.0.1': '64:ff9b:0:0::/64',
    '': ''
  })) t.equal(networkOf(address), network, address)

  const failures = new Failures()
  for (let i = 0; i < limits.failedAuthentications; i++) t.equal(failures.count(`2001:db8::${i.toString(16)}`, 0), undefined)
  t.equal(failures.count('2001:db8::ffff:1', 0), 1, 'a network is one')
  t.equal(failures.count('2001:db8:0:1::1', 0), undefined, 'the next is another')
  for (let i = 0; i < limits.failingAddresses; i++) failures.count(`10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`, 0)
  t.equal(failures.count('2001:db8::1', 0), undefined, 'the least recently seen was forgotten')
})

t.test('places are taken by module, given back, and never more than the most', async (t) => {
  const places = new Places(2)
  t.same([places.take('m1'), places.take('m1'), places.take('m1'), places.take('m2')], [true, true, false, true])
  places.give('m1')
  t.ok(places.take('m1'))
  places.give('m3')
  t.ok(places.take('m3'))
})
