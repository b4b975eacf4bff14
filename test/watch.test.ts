/** The WebSocket /watch: handshake, calls, watches and what they are told, as docs/watch.md promises it. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { spy } from './support/bus/spy.js'
import { proxy } from './support/bus/proxy.js'
import { fixture } from './support/fixture.js'
import { DASH, startGateway } from './support/gateway.js'
import { HOST } from './support/machine.js'
import { eventually } from './support/until.js'
import { http, rawHttp } from './support/wire/http.js'
import { request } from './support/wire/bytes.js'
import { frame, opcodes, rpc, text } from './support/wire/frames.js'
import { nowS, signers, svid } from './support/wire/signing.js'
import { ws, type WatchSocket, type WsOptions } from './support/wire/websocket.js'

const keys = signers()
const m1 = svid(keys.ed, 'module/m1')
const m2 = svid(keys.ed, 'module/m2')
const operator = svid(keys.ed, 'operator/alice')

t.test('/watch', async (t) => {
  const { server, nc, prov } = await fixture(t)
  const between = await proxy(t, server.port)
  const all = await spy(t, nc)
  const [gateway, small] = await Promise.all([
    startGateway(t, { natsUrl: between.url, keys, ready: true }),
    startGateway(t, {
      natsUrl: server.url,
      keys,
      ready: true,
      env: { ASK_TIMEOUT_MS: '400', MAX_WATCHES: '3', MAX_CONNECTIONS_PER_MODULE: '2', PUBLIC_URL: 'https://mesh.example:8443/' }
    })
  ])
  const open = (t: Test, options: WsOptions = {}): Promise<WatchSocket> => ws(t, gateway.port, { token: m1, ...options })
  const get = (key: string, kind = 'config') => http(gateway.port, 'GET', `/provision/${kind}/${encodeURIComponent(key)}`, { token: m1 })

  /** Waits until a key's last change on a connection is this value. */
  const handed = (client: WatchSocket, key: string, value: unknown) => eventually(`${key} is ${JSON.stringify(value)}`, () => client.changes(key).at(-1)?.value === value)

  let fences = 0
  /** Returns when what the gateway had to say at once on a connection is there: a change made after it has come, too. */
  const fence = async (client: WatchSocket): Promise<void> => {
    const key = `fence${++fences}`
    prov.set(`m1/config/${key}`, { value: 0 })
    await client.watch('config', key)
    prov.change(`m1/config/${key}`, { value: 1 })
    await eventually('the change of the fence', () => client.changes(key).length > 0)
    await client.unwatch('config', key)
  }

  await t.test('W1: two watches in the packet of the handshake are answered, hello first, 100 at once and a slow provisioner', async (t) => {
    prov.set('m1/config/slow1', { value: 1, delay: 300 }).set('m1/config/slow2', { value: 2, delay: 300 })
    const first = ['slow1', 'slow2'].map((key) => text(rpc('provision.watch', { kind: 'config', key }, key)))
    const clients = await Promise.all(Array.from({ length: 100 }, () => open(t, { first })))
    await eventually('every response', () => clients.every((client) => client.texts().length >= 3))
    await fence(clients[0] as WatchSocket)
    for (const client of clients) {
      const [hello, ...answers] = client.texts()
      t.match(hello, { method: 'mesh/session.hello', params: { module: 'm1', tickSeconds: 25 } })
      t.same(answers.filter(({ id }) => /^slow/.test(String(id))).map(({ id, result }) => [id, result.value]).sort(), [['slow1', 1], ['slow2', 2]])
    }
    t.equal(prov.askedOf('m1/config/slow1') + prov.askedOf('m1/config/slow2'), 2, 'one ask a value')
    for (const client of clients) client.end()
  })

  await t.test('W1: the same with a bad token is a 401 and no ask', async (t) => {
    const first = ['never1', 'never2'].map((key) => text(rpc('provision.watch', { kind: 'config', key }, key)))
    const clients = await Promise.all(Array.from({ length: 100 }, () => open(t, { first, token: m1.slice(0, -4) })))
    for (const client of clients) {
      t.equal(client.status, 401)
      t.equal(client.headers['www-authenticate'], 'Bearer')
      t.match(client.json, { type: 'urn:mesh-gateway:problem:unauthenticated' })
    }
    await nc.flush()
    t.equal(prov.askedOf('m1/config/never1') + prov.askedOf('m1/config/never2'), 0)
  })

  await t.test('hello says who one is, for how long, and the limits', async (t) => {
    const client = await open(t, { token: svid(keys.ed, 'module/m1', { exp: nowS() + 100 }) })
    const hello = await client.note('session.hello')
    t.match(hello?.params, { module: 'm1', tickSeconds: 25, limits: { watches: 1000, frameBytes: 16384 } })
    t.ok(hello?.params.expiresIn >= 95 && hello?.params.expiresIn <= 100)
  })

  await t.test('W6: a second watch answers the value again and adds nothing', async (t) => {
    prov.set('m1/config/twice', { value: 1 })
    const client = await open(t)
    const [a, b] = [await client.watch('config', 'twice'), await client.watch('config', 'twice')]
    t.match(a, { result: { kind: 'config', key: 'twice', value: 1, etag: /^".+"$/ } })
    t.same(b.result, a.result)
    prov.change('m1/config/twice', { value: 2 })
    await handed(client, 'twice', 2)
    await fence(client)
    t.same(client.changes('twice').map(({ value }) => value), [2], 'one changed')
    t.same((await client.get('config', 'twice')).result, { kind: 'config', key: 'twice', value: 2, etag: client.changes('twice')[0].etag })
    t.same((await client.unwatch('config', 'twice')).result, {})
    t.same((await client.unwatch('config', 'twice')).result, {}, 'unwatch twice')
    t.same((await client.unwatch('config', 'nothing')).result, {}, 'unwatch of nothing')
    prov.change('m1/config/twice', { value: 3 })
    await fence(client)
    t.equal(client.changes('twice').length, 1, 'nothing after the response to the unwatch')
  })

  await t.test('W6: `since` that is what stands now is answered `unchanged`, with the ETag of either transport', async (t) => {
    prov.set('m1/config/since', { value: 'same' })
    const { etag } = (await get('since')).headers
    const client = await open(t)
    t.same((await client.watch('config', 'since', { since: etag })).result, { kind: 'config', key: 'since', etag, unchanged: true })
    prov.change('m1/config/since', { value: 'other' })
    const changed = await client.note('provision.changed')
    t.match(changed?.params, { key: 'since', value: 'other' })
    const late = await open(t)
    t.match((await late.watch('config', 'since', { since: etag })).result, { value: 'other', unchanged: undefined })
    t.same((await late.watch('config', 'since', { since: changed?.params.etag })).result, { kind: 'config', key: 'since', etag: changed?.params.etag, unchanged: true })
    prov.change('m1/config/since', { value: 'last' })
    await handed(late, 'since', 'last')
    await fence(late)
    t.same(late.changes('since').map(({ value }) => value), ['last'])
  })

  await t.test('W6: a watch that is unwatched while it is asked is answered all the same, and nothing follows', async (t) => {
    prov.set('m1/config/inflight', { value: 1, delay: 300 }).set('m1/config/b', { value: 1 })
    const client = await open(t)
    const id = client.request('provision.watch', { kind: 'config', key: 'inflight' })
    await eventually('the ask', () => prov.askedOf('m1/config/inflight') === 1)
    const unwatched = await client.unwatch('config', 'inflight')
    t.same(unwatched.result, {})
    t.match(await client.watch('config', 'b'), { result: { value: 1 } })
    t.notOk(client.texts().some((one) => one.id === id), 'unwatched while the ask is in flight')
    t.match(await client.until((one) => one.id === id), { result: { kind: 'config', key: 'inflight', value: 1 } })
    prov.change('m1/config/inflight', { value: 2 })
    prov.change('m1/config/b', { value: 2 })
    await handed(client, 'b', 2)
    await fence(client)
    t.same(client.changes().filter(({ key }) => !key.startsWith('fence')).map(({ key, value }) => [key, value]), [['b', 2]])
    t.equal(prov.askedOf('m1/config/inflight'), 1, 'and nothing is asked for it any more')
  })

  await t.test('W6: two connections on one value cost one ask, and each is told each change once', async (t) => {
    prov.set('m1/config/shared', { value: 1, delay: 50 })
    const clients = await Promise.all([open(t), open(t)])
    await Promise.all(clients.map((client) => client.watch('config', 'shared')))
    t.equal(prov.askedOf('m1/config/shared'), 1)
    prov.change('m1/config/shared', { value: 2 })
    const frames = await Promise.all(clients.map((client) => client.note('provision.changed')))
    t.equal(frames[0]?.raw, frames[1]?.raw, 'the same frame')
    t.notMatch(frames[0], { params: { id: /./ } })
    t.equal(prov.askedOf('m1/config/shared'), 2)
  })

  await t.test('the response to a watch comes before its first notification, whatever happens meanwhile', async (t) => {
    const client = await open(t)
    for (let i = 0; i < 40; i++) {
      const name = `m1/config/order${i}`
      prov.set(name, { value: 1, delay: i % 4, snap: true })
      client.request('provision.watch', { kind: 'config', key: `order${i}` }, `order${i}`)
      if (i % 2 === 0) await eventually('the ask', () => prov.askedOf(name) > 0)
      prov.change(name, { value: 2 })
    }
    await eventually('all have the newest', () => Array.from({ length: 40 }, (_, i) => i).every((i) =>
      client.texts().some(({ id, result }) => id === `order${i}` && result.value === 2) || client.changes(`order${i}`).at(-1)?.value === 2))
    const seen = client.texts()
    for (let i = 0; i < 40; i++) {
      const response = seen.findIndex(({ id }) => id === `order${i}`)
      const note = seen.findIndex(({ method, params }) => method !== undefined && params.key === `order${i}`)
      t.ok(response >= 0 && (note < 0 || response < note), `watch ${i}`)
    }
  })

  await t.test('a value that is refused or not declared is an error and no watch; `keep` makes it one', async (t) => {
    prov.set('m1/config/kept', { refused: 'not yet' })
    const client = await open(t)
    t.match(await client.watch('config', 'kept'), { error: { code: -32001, message: 'not yet', data: { type: 'urn:mesh-gateway:problem:refused', status: 403 } } })
    t.match(await client.watch('config', 'undeclared'), { error: { code: -32001, data: { type: 'urn:mesh-gateway:problem:not-declared', status: 404 } } })
    prov.change('m1/config/kept', { value: 1 })
    await fence(client)
    t.same(client.changes('kept'), [], 'no watch')

    prov.change('m1/config/kept', { refused: 'again not' })
    t.same((await client.watch('config', 'kept', { keep: true })).result, { kind: 'config', key: 'kept', refused: 'again not' })
    t.match((await client.watch('config', 'undeclared', { keep: true })).result, { key: 'undeclared', refused: /./ })
    prov.change('m1/config/kept', { value: 2 })
    prov.change('m1/config/undeclared', { value: 3 })
    await handed(client, 'kept', 2)
    await handed(client, 'undeclared', 3)
    await fence(client)
    t.same(['kept', 'undeclared'].map((key) => client.changes(key).map(({ value }) => value)), [[2], [3]])
    prov.unset('m1/config/undeclared')

    for (const keep of [false, true]) {
      const { error } = await client.watch('secret', 'db', { keep })
      t.match(error, { code: -32001, data: { status: 403, type: 'urn:mesh-gateway:problem:refused' } }, 'a secret is always the error')
    }
    t.equal(prov.asked.filter(({ kind }) => kind === 'secret').length, 0)
  })

  await t.test('unavailable is an error and no watch; with `keep` it stands, and is told when the value is there', async (t) => {
    prov.set('m1/config/late', { silent: true })
    const client = await ws(t, small.port, { token: m1 })
    t.match(await client.watch('config', 'late'), { error: { code: -32002, data: { type: 'urn:mesh-gateway:problem:timeout', status: 504 } } })
    t.match(await client.get('config', 'late'), { error: { code: -32002 } })
    t.same((await client.watch('config', 'late', { keep: true })).result, { kind: 'config', key: 'late', unavailable: true })
    t.match(await client.note('session.tick'), { params: { live: false } })
    // No word: it is asked again by itself.
    prov.answers.set('m1/config/late', { value: 'there' })
    const changed = await client.note('provision.changed', 6000)
    t.match(changed, { params: { key: 'late', value: 'there' } })
    t.match(await client.note('session.tick', 1000, 1), { params: { live: true } })
    t.same(client.notes('provision.live'), [], '`changed` says both')
    client.end()
  })

  await t.test('V1: null, false, 0, "", [], {} and objects with any members are values, bytes as they are', async (t) => {
    const steps = ['null', 'false', '0', '-1.5', '""', '" "', '[]', '{}', '[null]', '{"constructor":{"prototype":1},"__proto__":2}',
      '{"value":1,"refused":"no","etag":"x"}', '12345678901234567890.10', '[]', '0', 'false', 'null']
    prov.set('m1/config/step', { raw: '1' })
    const client = await open(t)
    await client.watch('config', 'step')
    for (const [i, raw] of steps.entries()) {
      prov.change('m1/config/step', { raw })
      const note = await client.note('provision.changed', 3000, i)
      t.ok(note?.raw.includes(`"value":${raw},"etag":`), `a frame with ${raw}`)
      t.notOk(Object.hasOwn(note?.params, 'refused'))
      const answer = await get('step')
      t.equal(answer.body, raw)
      t.match(answer.headers['content-type'], /^application\/json\b/)
      t.equal(answer.headers.etag, note?.params.etag)
      t.equal(answer.status, 200)
    }
    t.equal(client.changes('step').length, steps.length)
  })

  await t.test('V3: a change is a change of bytes: one frame for each, none for the same again', async (t) => {
    const steps = ['{"a":1,"b":2}', '{"b":2,"a":1}', '{"b":2, "a":1}', '"A"', '"\\u0041"', '1', '1.0', '2']
    prov.set('m1/config/bytes', { raw: '0' })
    const client = await open(t)
    await client.watch('config', 'bytes')
    const etags = new Set<string>()
    for (const raw of steps) {
      prov.change('m1/config/bytes', { raw })
      await eventually(`the frame of ${raw}`, () => client.texts().some((one) => one.raw.includes(`"key":"bytes","value":${raw},`)))
      const asked = prov.askedOf('m1/config/bytes')
      prov.change('m1/config/bytes', { raw })
      await eventually('asked again', () => prov.askedOf('m1/config/bytes') > asked)
      etags.add((await get('bytes')).headers.etag as string)
    }
    await fence(client)
    t.equal(client.changes('bytes').length, steps.length)
    t.equal(etags.size, steps.length, 'as many ETags')
    t.same(client.changes('bytes').map(({ etag }) => etag), [...etags], "HTTP's and the socket's are equal")
  })

  await t.test('V5: refusal, the same value, silence and no longer declared are told apart', async (t) => {
    const name = 'm1/config/v5'
    prov.set(name, { value: 1 })
    const client = await ws(t, small.port, { token: m1 })
    await client.watch('config', 'v5')
    let asked = prov.askedOf(name)
    const step = async (told: Parameters<typeof prov.change>[1]) => {
      prov.change(name, told)
      await eventually('asked', () => prov.askedOf(name) > asked)
      asked = prov.askedOf(name)
      await http(small.port, 'GET', '/provision/config/v5', { token: m1 }) // answered when the view has it
    }
    await step({ refused: 'r1' })
    await step({ refused: 'r1' })
    await step({ refused: 'r2' })
    await step({ value: 1 })
    await step({ value: 1 })
    const said = () => client.changes('v5').map(({ value, refused }) => refused ?? value)
    await eventually('four changes', () => said().length >= 3)
    t.same(said(), ['r1', 'r2', 1])

    prov.change(name, { silent: true })
    t.match(await client.note('provision.stale'), { params: { kind: 'config', key: 'v5', since: /^\d{4}-\d\d-\d\dT/ } })
    t.match(await client.note('session.tick'), { params: { live: false } })
    prov.change(name, { value: 1 })
    t.same((await client.note('provision.live'))?.params, { kind: 'config', key: 'v5' })
    t.match(await client.note('session.tick', 1000, 1), { params: { live: true } })
    t.same(said(), ['r1', 'r2', 1], 'no change for the silence')

    prov.unset(name)
    prov.tell('m1', 'config', 'v5')
    await eventually('not declared is handed as refused', () => said().length > 3)
    prov.change(name, { value: 1 })
    await eventually('the value after it', () => said().length > 4)
    t.match(said().slice(3), [/no such value/, 1])
    client.end()
  })

  await t.test('K1: `*` and `>` as a key are that key and nothing more, at any word', async (t) => {
    const client = await open(t)
    const hostile = ['*', '>', 'port.*', 'a.*', '**', 'mesh.>']
    for (const key of hostile) {
      t.match(await client.watch('config', key), { error: { code: -32001, data: { type: 'urn:mesh-gateway:problem:not-declared' } } }, key)
      t.match(await client.watch('config', key, { keep: true }), { result: { key, refused: /./ } }, key)
    }
    t.match(await client.watch('*', 'port'), { error: { code: -32602, data: { status: 400, detail: /config.+bound/ } } })
    for (const module of ['m1', 'm2']) {
      for (const kind of ['config', 'bound']) {
        prov.tell(module, kind)
        for (const key of ['port', '*', '>', 'db']) prov.tell(module, kind, key)
      }
    }
    await fence(client)
    t.same(client.changes().filter(({ key }) => !key.startsWith('fence')), [])
    prov.change('m1/config/*', { value: 'its own' })
    await eventually('the declared star', () => client.changes('*').length > 0)
    t.same(client.changes('*').map(({ value }) => value), ['its own'])
    t.equal((await get('*')).body, '"its own"')
    t.equal(client.changes().filter(({ key }) => hostile.slice(1).includes(key)).length, 0)
    prov.unset('m1/config/*')
    prov.tell('m1', 'config', '*')
  })

  await t.test('K2: blanks and line ends in a key disturb nobody', async (t) => {
    const connections = between.connections
    const [one, two] = await Promise.all([open(t), open(t, { token: m2 })])
    await two.watch('config', 'port')
    for (const key of ['a b', ' ']) {
      t.match(await one.watch('config', key), { error: { code: -32001, data: { type: 'urn:mesh-gateway:problem:not-declared' } } })
      t.equal((await get(key)).status, 404)
    }
    const crafted = 'x 0\r\n\r\nPUB admin.x 2\r\nhi\r\nPUB y'
    for (const key of ['a\tb', 'a\nb', 'a\r\nb', '\0', crafted, '\x1b[2J', 'a\x85b', 'a\x7fb']) {
      for (const method of ['watch', 'get', 'unwatch'] as const) {
        const { error, raw } = await one[method]('config', key)
        t.match(error, { code: -32602, data: { type: 'urn:mesh-gateway:problem:invalid', status: 400 } }, JSON.stringify(key))
        t.notMatch(raw, 'admin.x')
      }
      t.equal((await get(key)).status, 400)
    }
    t.match(await one.watch('config', '\ud800'), { error: { code: -32602 } }, 'half a pair')
    t.match(await one.watch('config', 'k'.repeat(257)), { error: { code: -32602 } })
    prov.change('m2/config/port', { value: 9191 })
    t.match(await two.note('provision.changed', 1000), { params: { value: 9191 } })
    prov.change('m2/config/port', { value: 9090 })
    t.same(all.of('admin'), [])
    t.equal(between.connections, connections)
    t.equal(connections, 1, 'the gateway keeps its one connection')
    t.same(gateway.logged(/admin\.x|PUB y/), [])
  })

  await t.test("T5: the module is the connection's, whatever a frame says", async (t) => {
    const from = prov.asked.length
    const client = await open(t, { target: '/watch?module=m2', headers: { 'X-Module': 'm2', Cookie: `token=${m2}` } })
    t.match(await client.note('session.hello'), { params: { module: 'm1' } })
    prov.change('m1/config/port', { value: 8080 })
    const more = { module: 'm2', node: 'node-b', sub: 'module/m2' }
    t.match(await client.watch('config', 'port', more), { result: { value: 8080 } })
    t.match(await client.call('provision.get', { kind: 'config', key: 'port', ...more }), { result: { value: 8080 } })
    t.match(await client.get('config', 'm2/config/port'), { error: { code: -32001 } })
    t.match(await client.call('auth.renew', { token: svid(keys.ed, 'module/m2', { exp: nowS() + 9999 }) }), {
      error: { code: -32004, data: { type: 'urn:mesh-gateway:problem:unauthenticated', status: 401 } }
    })
    t.match(await client.get('config', 'port'), { result: { value: 8080 } }, 'and nothing changed')
    t.same([...new Set(prov.asked.slice(from).map(({ module }) => module))], ['m1'])
    prov.change('m2/config/port', { value: 9090 })
    await fence(client)
    t.same(client.changes('port'), [])
  })

  await t.test('JSON-RPC: each way to be wrong has its code, and a message without an id does nothing', async (t) => {
    const client = await open(t)
    await client.note('session.hello')
    const answerTo = async (message: unknown): Promise<unknown> => {
      const from = client.texts().length
      client.send(text(message))
      await eventually('an answer', () => client.texts().length > from)
      return client.texts()[from]
    }
    t.match(await answerTo('{'), { id: null, error: { code: -32700 } })
    t.match(await answerTo(''), { id: null, error: { code: -32700 } })
    for (const wrong of [[rpc('provision.get', { kind: 'config', key: 'port' }, 1)], [], '1', 'null', '"x"', {}, { id: 5 }, { jsonrpc: '1.0', id: 5, method: 'x' },
      { jsonrpc: '2.0', id: 5 }, { jsonrpc: '2.0', id: 5, method: 7 }, { jsonrpc: '2.0', id: {}, method: 'x' }]) {
      t.match(await answerTo(wrong), { jsonrpc: '2.0', error: { code: -32600 } }, JSON.stringify(wrong))
    }
    for (const method of ['mesh/nothing', 'provision.get', 'constructor', '__proto__', 'mesh/session.hello']) {
      t.match(await answerTo({ jsonrpc: '2.0', id: 6, method, params: {} }), { id: 6, error: { code: -32601 } }, method)
    }
    for (const params of [[], ['config', 'port'], 'config', 1, null, true]) {
      t.match(await answerTo(rpc('provision.get', params, 'p')), { id: 'p', error: { code: -32602 } }, JSON.stringify(params))
    }
    for (const params of [{}, { kind: 'config' }, { key: 'port' }, { kind: '', key: 'port' }, { kind: 'config', key: '' }, { kind: 'config', key: 5 },
      { kind: ['config'], key: 'port' }, { kind: 'Config', key: 'port' }]) {
      for (const method of ['provision.get', 'provision.watch', 'provision.unwatch']) {
        t.match(await answerTo(rpc(method, params, 'q')), { id: 'q', error: { code: -32602, data: { status: 400, type: 'urn:mesh-gateway:problem:invalid' } } })
      }
    }
    t.match(await answerTo(rpc('auth.renew', {}, 'r')), { id: 'r', error: { code: -32602 } })
    for (const id of ['a', 0, -1, 1.5, '', null]) t.match(await answerTo(rpc('provision.unwatch', { kind: 'config', key: 'port' }, id)), { id, result: {} })

    prov.set('m1/config/noid', { value: 1 })
    const from = client.texts().length
    client.send(text(rpc('provision.watch', { kind: 'config', key: 'noid' })))
    client.send(text(rpc('nothing', {})))
    client.send(text({ jsonrpc: '2.0', method: 'mesh/auth.renew', params: { token: m2 } }))
    await client.get('config', 'port')
    prov.change('m1/config/noid', { value: 2 })
    await fence(client)
    t.notOk(client.texts().slice(from).some(({ id, error }) => id === undefined ? false : error), 'no answer')
    t.same(client.changes('noid'), [])
    t.equal(prov.askedOf('m1/config/noid'), 0)
  })

  await t.test('close codes: 1003 binary, 1009 too big, 4400 too many bad messages', async (t) => {
    const closes = async (...frames: Buffer[]): Promise<WatchSocket> => {
      const client = await open(t)
      for (const one of frames) client.send(one)
      t.ok(await client.untilClosed(), 'closed')
      return client
    }
    t.equal((await closes(frame(opcodes.binary, 'x'))).closeCode, 1003)
    t.equal((await closes(text('x'.repeat(16_385)))).closeCode, 1009)
    const bad = await closes(...Array.from({ length: 150 }, () => text('{')))
    t.equal(bad.closeCode, 4400)
    t.ok(bad.texts().filter(({ error }) => error?.code === -32700).length >= 99, 'those before were answered')
    const fits = await open(t)
    const long = rpc('provision.get', { kind: 'config', key: 'port', filler: '' }, 1)
    fits.send(text(rpc('provision.get', { kind: 'config', key: 'port', filler: 'x'.repeat(16_384 - JSON.stringify(long).length) }, 1)))
    t.match(await fits.until(({ id }) => id === 1), { result: { value: 8080 } }, 'a frame of 16384 bytes is read')
  })

  await t.test('the subprotocol is mesh.provision.v1, said back alone; others alone are refused', async (t) => {
    const offered = (protocols: string | null, token: string | undefined = m1) => open(t, { token, headers: { 'Sec-WebSocket-Protocol': protocols } })
    const none = await offered(null)
    t.match(none, { status: 101, headers: { 'sec-websocket-protocol': undefined } })
    t.match(await none.get('config', 'port'), { result: { value: 8080 } })
    t.match(await offered('mesh.provision.v1'), { status: 101, headers: { 'sec-websocket-protocol': 'mesh.provision.v1' } })
    t.match(await offered('other, mesh.provision.v1'), { status: 101, headers: { 'sec-websocket-protocol': 'mesh.provision.v1' } })
    const carried = await open(t, { token: undefined, headers: { 'Sec-WebSocket-Protocol': `bearer.${m1}, mesh.provision.v1` } })
    t.match(carried, { status: 101, headers: { 'sec-websocket-protocol': 'mesh.provision.v1' } })
    t.match(await carried.get('config', 'port'), { result: { value: 8080 } })
    t.match(await offered('mesh.provision.v2'), { status: 400, json: { type: 'urn:mesh-gateway:problem:invalid', detail: /mesh\.provision\.v1/ } })
    t.match(await open(t, { token: undefined, headers: { 'Sec-WebSocket-Protocol': `bearer.${m1}` } }), { status: 400 }, 'a bearer alone')
    for (const list of ['mesh.provision.v1, mesh.provision.v1', 'mesh.provision.v1,, other', 'mesh.provision.v1, a b']) {
      t.match(await offered(list), { status: 400, json: { detail: /Sec-WebSocket-Protocol is no list/ } }, list)
    }
    t.match(await open(t, { headers: { 'Sec-WebSocket-Protocol': `mesh.provision.v1, bearer.${m2}` } }), { status: 401 }, 'two credentials')
  })

  await t.test("a page's origin must be the gateway's own address or named; the Host header is not looked at", async (t) => {
    const from = async (port: number, Origin: string, headers = {}) => (await ws(t, port, { token: m1, headers: { Origin, ...headers } }))
    for (const origin of [`http://localhost:${gateway.port}`, `http://127.0.0.1:${gateway.port}`, `http://[::1]:${gateway.port}`, DASH]) {
      t.equal((await from(gateway.port, origin)).status, 101, origin)
    }
    for (const origin of ['https://evil.example', 'null', '', `https://localhost:${gateway.port}`, `http://localhost:${gateway.port + 1}`, `${DASH}.evil.example`, 'http://evil.example']) {
      const client = await from(gateway.port, origin, { Host: 'evil.example' })
      t.match(client, { status: 403, json: { type: 'urn:mesh-gateway:problem:origin' } }, origin)
    }
    const own = await from(small.port, 'https://mesh.example:8443')
    t.equal(own.status, 101, 'PUBLIC_URL')
    t.equal((await from(small.port, `http://localhost:${small.port}`)).status, 403, 'takes the place of the listening address')
    own.end()
  })

  await t.test('who may not, and what is no websocket, has a plain answer and never a 101', async (t) => {
    t.match(await open(t, { token: operator }), { status: 403, json: { type: 'urn:mesh-gateway:problem:forbidden' } })
    t.match(await open(t, { token: svid(keys.ed, 'reader/grafana') }), { status: 403 })
    t.match(await open(t, { token: undefined }), { status: 401, headers: { 'www-authenticate': 'Bearer' } })
    t.match(await open(t, { headers: { 'Sec-WebSocket-Version': '12' } }), { status: 426, headers: { upgrade: /websocket/ } })
    t.match(await open(t, { headers: { 'Sec-WebSocket-Key': 'short' } }), { status: 400 })
    t.match(await open(t, { headers: { Upgrade: 'websocket, h2c' } }), { status: 400, json: { detail: /name it alone/ } })
    t.match(await open(t, { headers: { 'Content-Length': '2' } }), { status: 400, json: { detail: /no body/ } })
    t.match(await http(gateway.port, 'GET', '/watch', { token: m1 }), { status: 426, headers: { upgrade: /websocket/ }, json: { type: 'urn:mesh-gateway:problem:upgrade-required' } })
    t.match(await http(gateway.port, 'GET', '/watch', { token: m1, headers: { Upgrade: 'websocket' } }), { status: 426 }, 'an Upgrade without Connection is none')
    t.match(await http(gateway.port, 'GET', '/watch'), { status: 401 })
    t.match(await http(gateway.port, 'POST', '/watch', { token: m1 }), { status: 405 })
    for (const target of ['/provision/config/port', '/provision/config', '/livez', '/modules/m1/take-in', '/openapi.json', '/nowhere', '/provision/config/%zz', '/watch/']) {
      const client = await open(t, { target })
      t.ok(client.status >= 400 && client.status < 500, `${target}: ${client.status}`)
      t.equal(client.headers['content-type'], 'application/problem+json; charset=utf-8')
      t.ok(await client.untilClosed(), 'and the connection ends')
    }
    t.equal((await open(t, { target: '/provision/config/port' })).status, 426)
  })

  await t.test('an upgrade that is no websocket is answered as plain HTTP; with a body it is refused', async (t) => {
    const h2c = { Connection: 'Upgrade, HTTP2-Settings', Upgrade: 'h2c', 'HTTP2-Settings': 'AAMAAABkAARAAAAAAAIAAAAA', Authorization: `Bearer ${m1}` }
    const { responses: [answer], closed } = await rawHttp(gateway.port, request('GET', '/provision/config/port', h2c))
    t.match(answer, { status: 200, body: '8080' })
    t.equal(closed, 'closed')
    const [head] = (await rawHttp(gateway.port, request('HEAD', '/provision/config/port', h2c), { head: true })).responses
    t.equal(head?.status, 200)
    for (const headers of [{ ...h2c, Authorization: `Bearer ${operator}` }, { ...h2c, Authorization: null, 'Transfer-Encoding': 'chunked' }]) {
      const sent = await rawHttp(gateway.port, request('POST', '/modules/m1/take-in', headers, '{"reason":"x"}'))
      t.match(sent.responses, [{ status: 400, body: /plain HTTP\/1\.1/ }])
      t.equal(sent.closed, 'closed')
    }
    t.match((await rawHttp(gateway.port, request('GET', '/watch', h2c))).responses, [{ status: 426 }])
  })

  await t.test('one watch too many is an error of its own, and one connection too many a 429', async (t) => {
    const client = await ws(t, small.port, { token: m1 })
    for (const key of ['l1', 'l2', 'l3', 'l4']) prov.set(`m1/config/${key}`, { value: key })
    for (const key of ['l1', 'l2', 'l3', 'l1']) t.match(await client.watch('config', key), { result: { key } })
    t.match(await client.watch('config', 'l4'), { error: { code: -32003, data: { type: 'urn:mesh-gateway:problem:too-many-requests', status: 429 } } })
    t.match(await client.get('config', 'l4'), { result: { value: 'l4' } }, 'a get is none')
    await client.unwatch('config', 'l2')
    t.match(await client.watch('config', 'l4'), { result: { value: 'l4' } })
    await client.unwatch('config', 'l4')
    t.match(await client.watch('config', 'none'), { error: { code: -32001 } })
    t.match(await client.watch('config', 'l2'), { result: { value: 'l2' } }, 'a watch that was refused takes no room')

    const second = await ws(t, small.port, { token: m1 })
    t.equal(second.status, 101)
    const third = await ws(t, small.port, { token: m1 })
    t.match(third, { status: 429, json: { type: 'urn:mesh-gateway:problem:too-many-requests' } })
    t.ok(Number(third.headers['retry-after']) > 0)
    const other = await ws(t, small.port, { token: m2 })
    t.equal(other.status, 101, "another module's are its own")
    second.end()
    await eventually('its place is given back', async () => {
      const again = await ws(t, small.port, { token: m1 })
      again.end()
      return again.status === 101
    })
    for (const one of [client, other]) one.end()
  })

  await t.test('T3: a credential ends on a live connection at its expiry; renewed in time it does not', async (t) => {
    const exp = nowS() + 3
    const short = svid(keys.ed, 'module/m1', { exp })
    prov.set('m1/config/t3', { value: 1 }).set('m1/config/t3-only', { value: 1 })
    const [ends, renewed, far] = await Promise.all([open(t, { token: short }), open(t, { token: short }), open(t, { token: svid(keys.ed, 'module/m1', { exp: nowS() + 40 * 86_400 }) })])
    await Promise.all([ends, renewed, far].map((client) => client.watch('config', 't3')))
    await ends.watch('config', 't3-only')
    t.match(await ends.note('session.expiring'), { params: { expiresIn: /^[123]$/ } }, 'at once, it being less than 30 s ahead')
    t.equal(far.notes('session.expiring').length, 0)

    const later = svid(keys.ed, 'module/m1', { exp: exp + 600 })
    const refusals = [svid(keys.ed, 'module/m2', { exp: exp + 600 }), svid(keys.ed, 'module/m1', { exp: exp - 1 }), short, `${later.slice(0, -4)}AAAA`, 'x', '', operator]
    for (const token of refusals) {
      t.match(await renewed.call('auth.renew', { token }), { error: { code: -32004, data: { status: 401, type: 'urn:mesh-gateway:problem:unauthenticated' } } })
    }
    const answer = await renewed.call('auth.renew', { token: later })
    t.ok(answer.result?.expiresIn > 590 && answer.result?.expiresIn <= 603, 'renewed')
    prov.change('m1/config/t3', { value: 2 })
    await Promise.all([ends, renewed, far].map((client) => client.note('provision.changed')))

    t.ok(await ends.untilClosed(5000))
    const at = Date.now()
    t.equal(ends.closeCode, 4401)
    t.ok(at >= exp * 1000 - 50 && at < exp * 1000 + 1000, `${at - exp * 1000} ms after its expiry`)
    const asked = prov.askedOf('m1/config/t3-only')
    prov.change('m1/config/t3', { value: 3 })
    prov.change('m1/config/t3-only', { value: 3 })
    for (const client of [renewed, far]) t.match(await client.note('provision.changed', 2000, 1), { params: { value: 3 } })
    t.same(ends.changes().map(({ value }) => value), [2], 'nothing was handed after')
    await fence(renewed)
    t.equal(prov.askedOf('m1/config/t3-only'), asked, 'nothing is asked for its watches any more')
    t.equal((await open(t, { token: svid(keys.ed, 'module/m1', { exp: nowS() - 2 }) })).status, 401, 'within the leeway no connection is opened any more')
    t.notOk(far.closed)
  })

  await t.test('W6: of 200 connections that watched and dropped nothing stays', async (t) => {
    prov.set('m1/config/dropped', { value: 1 })
    const port = (n: number) => n % 2 === 0 ? gateway.port : small.port
    const round = async (n: number): Promise<void> => {
      const client = await eventually('a place for the connection', async () => {
        const made = await ws({ teardown: () => undefined }, port(n), { token: m1 })
        return made.status === 101 && made
      })
      client.request('provision.watch', { kind: 'config', key: n % 3 === 0 ? `slow${n}` : 'dropped' })
      if (n % 4 !== 0) await client.until(({ id }) => id === 1)
      if (n % 5 === 0) client.rst()
      else client.end()
    }
    prov.fallback = (name) => name.includes('slow') ? { value: 1, delay: 20 } : undefined
    const rounds = async (): Promise<number> => {
      for (let n = 0; n < 200; n++) await round(n)
      return Number(execFileSync('ps', ['-o', 'rss=', '-p', String(gateway.process.pid)]).toString())
    }
    const before = await rounds()
    const after = await rounds()
    prov.fallback = undefined
    t.ok(after - before < 20_000, `the process grew by ${after - before} KiB in 200 rounds`)
    const client = await open(t)
    await fence(client)
    const asked = prov.asked.length
    prov.tell('m1', 'config', 'dropped')
    for (let n = 0; n < 200; n += 3) prov.tell('m1', 'config', `slow${n}`)
    await fence(client)
    t.same([...new Set(prov.asked.slice(asked).map(({ key }) => key))].filter((key) => !key.startsWith('fence')), [], 'no ask for the dropped')
  })

  await t.test('a gateway that goes down closes its watches with 1012 and takes no new one', async (t) => {
    const client = await ws(t, small.port, { token: m1 })
    await client.watch('config', 'port')
    // Browsers open connections in advance; others send half a request and no more.
    const mute = await Promise.all(['', 'GET /livez HTTP/1.1\r\nHost: x\r\n'].map(async (bytes) => {
      const socket = connect(small.port, HOST).on('error', () => undefined)
      t.teardown(() => socket.destroy())
      await once(socket, 'connect')
      socket.write(bytes)
      return socket
    }))
    const began = Date.now()
    await small.stop()
    t.equal(client.closeCode, 1012)
    t.ok(Date.now() - began < 5000, `${mute.length} connections that say nothing do not hold it: ${Date.now() - began} ms`)
  })
})
