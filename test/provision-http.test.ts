/** GET /provision: every way it answers (DESIGN section 6), with the provisioner behind it doing right, wrong or nothing. */
import { headers } from 'nats'
import t from 'tap'
import { encode } from './support/bus/client.js'
import { fixture } from './support/fixture.js'
import { startGateway } from './support/gateway.js'
import { eventually } from './support/until.js'
import { http, rawHttp, type HttpOptions } from './support/wire/http.js'
import { signers, svid } from './support/wire/signing.js'

const keys = signers()
const token = svid(keys.ed, 'module/m1')
const askTimeoutMs = 600
const problem = (name: string) => ({ type: `urn:mesh-gateway:problem:${name}` })

t.test('GET /provision/:kind/:key and /provision/:kind', async (t) => {
  const { server, nc, prov } = await fixture(t)
  const gateway = await startGateway(t, { natsUrl: server.url, keys, ready: true, env: { ASK_TIMEOUT_MS: String(askTimeoutMs) } })
  const get = (key: string, headers: HttpOptions['headers'] = {}, method = 'GET') =>
    http(gateway.port, method, `/provision/config/${encodeURIComponent(key)}`, { token, headers })
  const list = (kind: string, who = token) => http(gateway.port, 'GET', `/provision/${kind}`, { token: who })

  await t.test("200: the value's bytes unchanged, with an ETag of them, and what caches need to know", async (t) => {
    const raws = ['{ "b" : 1.0,\n\t"a":"\\u0041", "a": 2 }', '"é"', '"e\u0301"', ' [1] ', '1e400', `"${'x'.repeat(900_000)}"`, '"\u2028"']
    const etags = new Set<string>()
    for (const [i, raw] of raws.entries()) {
      prov.set(`m1/config/raw${i}`, { raw })
      const answer = await get(`raw${i}`)
      t.equal(answer.status, 200)
      t.ok(answer.data.equals(Buffer.from(raw)), `value ${i}`)
      t.match(answer.headers, {
        etag: /^"[^"]+"$/,
        'content-type': /^application\/json\b/,
        'content-length': String(Buffer.byteLength(raw)),
        'cache-control': 'private, no-cache',
        vary: 'Accept, Authorization, Origin'
      })
      etags.add(answer.headers.etag as string)
    }
    t.equal(etags.size, raws.length)
    prov.set('m1/config/copy', { raw: raws[0] as string })
    t.ok(etags.has((await get('copy')).headers.etag as string), 'the same bytes have the same ETag')
    t.match(await http(gateway.port, 'GET', '/provision/bound/db', { token }), { status: 200, body: '"postgres://db.mesh/app"' })
  })

  await t.test('many gets cost one ask, and none while the value is fresh', async (t) => {
    prov.set('m1/config/once', { value: 1, delay: 100 })
    const answers = await Promise.all(Array.from({ length: 100 }, () => get('once')))
    t.ok(answers.every(({ status, body }) => status === 200 && body === '1'))
    for (let i = 0; i < 10; i++) await get('once')
    t.equal(prov.askedOf('m1/config/once'), 1)
    prov.change('m1/config/once', { value: 2 })
    await eventually('the word is heard', async () => (await get('once')).body === '2')
    t.equal(prov.askedOf('m1/config/once'), 2)
  })

  await t.test('no-cache asks though the value is known, and joins only an ask that began after it', async (t) => {
    prov.set('m1/config/fresh', { value: 1 })
    await get('fresh')
    prov.answers.set('m1/config/fresh', { value: 2 })
    t.equal((await get('fresh', { 'Cache-Control': 'max-age=0' })).body, '1', 'nobody said that it moved')
    t.equal((await get('fresh', { 'Cache-Control': 'max-age=0, No-Cache' })).body, '2')
    t.equal((await get('fresh')).body, '2', 'and what it learned is what everybody has')
    const asked = prov.askedOf('m1/config/fresh')
    prov.answers.set('m1/config/fresh', { value: 3, delay: 150, snap: true })
    const early = get('fresh', { 'Cache-Control': 'no-cache' })
    await eventually('the ask', () => prov.askedOf('m1/config/fresh') > asked)
    prov.answers.set('m1/config/fresh', { value: 4 })
    const late = await Promise.all(Array.from({ length: 20 }, () => get('fresh', { 'Cache-Control': 'no-cache' })))
    t.equal((await early).body, '3')
    t.ok(late.every(({ body }) => body === '4'))
    t.ok(prov.askedOf('m1/config/fresh') <= asked + 3, 'those that came together share one')
  })

  await t.test('304 where If-None-Match names what is current, in every form, and only while it is known current', async (t) => {
    prov.set('m1/config/etag', { value: 1 })
    const { etag } = (await get('etag')).headers
    for (const header of [etag, '*', `W/${etag}`, `"other", ${etag}`, `"a,b",W/${etag} , "z"`]) {
      const answer = await get('etag', { 'If-None-Match': header })
      t.equal(answer.status, 304, String(header))
      t.equal(answer.body, '')
      t.match(answer.headers, { etag, 'cache-control': 'private, no-cache', vary: 'Accept, Authorization, Origin' })
    }
    t.equal((await get('etag', { 'If-None-Match': etag }, 'HEAD')).status, 304)
    for (const header of ['"other"', 'W/"other"', etag?.slice(1, -1), '', '"', `"x${etag?.slice(1)}`]) {
      t.match(await get('etag', { 'If-None-Match': header }), { status: 200, body: '1' }, `${header}`)
    }
    prov.change('m1/config/etag', { value: 2 })
    await eventually('the word is heard', async () => (await get('etag', { 'If-None-Match': etag })).status === 200)
    t.match(await get('etag', { 'If-None-Match': `${etag}` }), { status: 200, body: '2' })
    prov.change('m1/config/etag', { silent: true })
    const now = (await get('etag', { 'If-None-Match': '*' })).status
    t.ok([304, 504].includes(now))
    await eventually('the word is heard', async () => (await get('etag', { 'If-None-Match': '*' })).status === 504)
    prov.change('m1/config/etag', { refused: 'no' })
    await eventually('a refusal', async () => (await get('etag', { 'If-None-Match': '*' })).status === 403)
  })

  await t.test('HEAD is GET without the body', async (t) => {
    for (const [key, told] of Object.entries({ value: { value: [1] }, refused: { refused: 'no' }, gone: {}, broken: { raw: '{' }, silent: { silent: true } })) {
      if (key !== 'gone') prov.set(`m1/config/head-${key}`, told)
      const [head, plain] = [await get(`head-${key}`, {}, 'HEAD'), await get(`head-${key}`)]
      t.equal(head.status, plain.status, key)
      t.equal(head.body, '')
      for (const name of ['etag', 'content-type', 'content-length', 'cache-control']) t.equal(head.headers[name], plain.headers[name], `${key}: ${name}`)
    }
  })

  await t.test('403 refused with the reason, 404 not declared; neither may be kept by a cache', async (t) => {
    prov.set('m1/config/no', { refused: 'the database is being moved' })
    const refused = await get('no')
    t.match(refused, {
      status: 403,
      json: { ...problem('refused'), title: /./, status: 403, detail: 'the database is being moved' },
      headers: { 'content-type': /^application\/problem\+json/, 'cache-control': 'no-store', etag: undefined }
    })
    t.match(await get('nowhere'), { status: 404, json: problem('not-declared'), headers: { 'cache-control': 'no-store' } })
    prov.set('m1/config/no2', { refused: 'not declared here', code: 404 })
    t.match(await get('no2'), { status: 404, json: { ...problem('not-declared'), detail: 'not declared here' } })
    prov.set('m1/config/no3', { code: 403 })
    t.match(await get('no3'), { status: 403, json: { ...problem('refused'), detail: /./ } }, 'a reason that is missing is not an empty sentence')
    prov.set('m1/config/no4', { refused: 'r'.repeat(3000) })
    t.ok((await get('no4')).json.detail.length <= 500)
    const asked = prov.asked.length
    await get('no')
    t.equal(prov.asked.length, asked, 'a refusal is served from memory, too')
    prov.change('m1/config/no', { value: 1 })
    await eventually('a value after a refusal', async () => (await get('no')).status === 200)
    prov.change('m1/config/no', { refused: 'once', code: 403 })
    await eventually('refused', async () => (await get('no')).status === 403)
    prov.change('m1/config/no', { refused: 'once', code: 404 })
    await eventually('the same reason under another code', async () => (await get('no')).status === 404)
  })

  await t.test('502 for any answer that is none: it is never taken for a value or a refusal', async (t) => {
    const broken = {
      'no JSON': { raw: 'hello' },
      empty: { raw: '' },
      'half of it': { raw: '{"a":' },
      'more than one': { raw: '1 2' },
      'bytes that are no UTF-8': { raw: Uint8Array.of(0x22, 0xff, 0x22) },
      'a byte order mark': { raw: '\ufeff1' },
      'no revision': { value: 1, rev: null },
      'a refusal without a revision': { refused: 'no', rev: null },
      'not declared without a revision': { refused: 'no', code: 404, rev: null },
      'an error of another code': { refused: 'the disk is full', code: 500 },
      'an error 400': { refused: 'what?', code: 400 },
      'an error 200': { refused: 'fine', code: 200 }
    }
    const revisions = ['x', '1', '1.', '.1', '1.2.3', '-1.5', '1.-5', '1e3.5', '1,5', 'NaN.1', '1.9999999999999999999999', '0x1.2']
    const cases = [...Object.entries(broken), ...revisions.map((rev) => [`the revision ${rev}`, { value: 1, rev }] as const)]
    for (const [what, told] of cases) {
      prov.set('m1/config/broken', told)
      const answer = await get('broken', { 'Cache-Control': 'no-cache' })
      t.match(answer, { status: 502, json: problem('bad-answer'), headers: { 'cache-control': 'no-store' } }, what)
      t.ok(answer.ms < askTimeoutMs, 'at once')
    }
    prov.set('m1/config/broken', { value: 'mended' })
    t.match(await get('broken'), { status: 200, body: '"mended"' }, 'the next one is asked anew')
    t.equal((await get('port')).status, 200, 'and the others were never in question')
  })

  await t.test('504 for a provisioner that says nothing, within the ask timeout; asked once more at its half', async (t) => {
    prov.set('m1/config/silent', { silent: true })
    const silent = await get('silent')
    t.match(silent, { status: 504, json: problem('timeout'), headers: { 'cache-control': 'no-store' } })
    t.ok(silent.ms >= askTimeoutMs - 20 && silent.ms < askTimeoutMs + 300, `after ${silent.ms} ms`)
    t.equal(prov.askedOf('m1/config/silent'), 2)

    prov.set('m1/config/again', { silent: true })
    const again = get('again')
    await eventually('the first try', () => prov.askedOf('m1/config/again') === 1)
    prov.answers.set('m1/config/again', { value: 'the second time' })
    const answer = await again
    t.match(answer, { status: 200, body: '"the second time"' }, 'a member of the queue group that has stopped costs half the timeout')
    t.ok(answer.ms >= askTimeoutMs / 2 - 20, `after ${answer.ms} ms`)
    t.equal(prov.askedOf('m1/config/again'), 2)

    prov.set('m1/config/slow', { value: 'slow', delay: 0.75 * askTimeoutMs })
    t.match(await get('slow'), { status: 200, body: '"slow"' }, 'a slow answer to the first try counts')
    t.match(await get('slow'), { status: 200, body: '"slow"' })
  })

  await t.test("the list: a module's own keys of a kind, asked of the provisioner", async (t) => {
    t.match(await list('bound'), { status: 200, json: { kind: 'bound', keys: ['db'] }, headers: { 'content-type': /^application\/json/, 'cache-control': 'private, no-cache' } })
    const { json } = await list('config')
    t.equal(json.kind, 'config')
    t.ok(json.keys.includes('port') && json.keys.includes('%2F') && !json.keys.includes('db'))
    t.same((await list('bound', svid(keys.ed, 'module/m2'))).json, { kind: 'bound', keys: [] })
    t.same((await list('config', svid(keys.ed, 'module/m2'))).json, { kind: 'config', keys: ['port'] })
    const listed = prov.listed.length
    t.match(await list('secret'), { status: 403, json: problem('refused') })
    for (const kind of ['Config', 'configs', '%2A']) t.match(await list(kind), { status: 400, json: { ...problem('invalid'), detail: /config.+bound/ } })
    t.match(await http(gateway.port, 'GET', '/provision/config'), { status: 401 })
    t.equal(prov.listed.length, listed, 'nobody is asked for what is refused')
    prov.mute = true
    const silent = await list('config')
    prov.mute = false
    t.match(silent, { status: 504, json: problem('timeout') })
    t.ok(silent.ms < askTimeoutMs + 300)
  })

  await t.test('503 with Retry-After where nobody answers for the node; a broken list is 502', async (t) => {
    prov.stop()
    await nc.flush()
    for (const answer of [await get('never-seen'), await list('config')]) {
      t.match(answer, { status: 503, json: { ...problem('unavailable'), detail: /provisioner/ }, headers: { 'retry-after': /^[1-9]\d*$/, 'cache-control': 'no-store' } })
      t.ok(answer.ms < askTimeoutMs, 'at once')
    }
    let reply: { body: string, revision?: string, code?: string } = { body: '' }
    const standIn = nc.subscribe('mesh.provision.node-a.m1.list', {
      callback: (_, ask) => {
        const said = headers()
        if (reply.revision) said.set('Mesh-Revision', reply.revision)
        if (reply.code) said.set('Nats-Service-Error-Code', reply.code)
        ask.respond(encode(reply.body), { headers: said })
      }
    })
    t.teardown(() => standIn.unsubscribe())
    await nc.flush()
    const whole = '{"config":["a"],"bound":[]}'
    for (const one of [{ body: whole }, { body: 'null', revision: '1.1' }, { body: '[]', revision: '1.1' }, { body: '{"config":["a"]}', revision: '1.1' },
      { body: '{"config":[1],"bound":[]}', revision: '1.1' }, { body: '{"config":"a","bound":[]}', revision: '1.1' }, { body: '{', revision: '1.1' },
      { body: '', revision: '1.1', code: '500' }]) {
      reply = one
      t.match(await list('config'), { status: 502, json: problem('bad-answer') }, JSON.stringify(one))
    }
    reply = { body: whole, revision: '1.1' }
    t.match(await list('config'), { status: 200, json: { kind: 'config', keys: ['a'] } })
    reply = { body: '', revision: '1.1', code: '403' }
    t.match(await list('config'), { status: 403, json: problem('refused') })
    await prov.start()
    t.match(await get('never-seen'), { status: 404 })
  })

  t.test('no value was logged', async (t) => {
    t.same(gateway.logged(/mended|postgres|the second time/), [])
  })

  await t.test('what never reaches a route is answered in the form that errors have', async (t) => {
    const odd = {
      'no Host': 'GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n',
      'another expectation': 'GET /livez HTTP/1.1\r\nHost: x\r\nExpect: magic\r\n\r\n',
      'no HTTP': 'HELO mesh\r\n\r\n',
      'headers too large': `GET /livez HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`
    }
    for (const [what, bytes] of Object.entries(odd)) {
      const { responses: [answer] } = await rawHttp(gateway.port, bytes)
      t.match(answer, { status: 400, headers: { 'content-type': /^application\/problem\+json/, 'cache-control': 'no-store' } }, what)
      t.match(JSON.parse(answer?.body ?? ''), { ...problem('invalid'), status: 400 }, what)
    }
    t.equal((await rawHttp(gateway.port, 'GET /livez HTTP/1.0\r\n\r\n')).responses[0]?.status, 200, 'HTTP/1.0 needs no Host')
  })
})
