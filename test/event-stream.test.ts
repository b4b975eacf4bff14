/** The event stream of a value, and what `stale-if-error` gives while it cannot be asked (DESIGN section 6). */
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import t from 'tap'
import { proxy } from './support/bus/proxy.js'
import { fixture, gatewayOnFixture } from './support/fixture.js'
import { DASH, startGateway } from './support/gateway.js'
import { HOST } from './support/machine.js'
import { eventually } from './support/until.js'
import { http } from './support/wire/http.js'
import { nowS, signers, svid } from './support/wire/signing.js'
import { sse } from './support/wire/sse.js'
import { ws } from './support/wire/websocket.js'

const keys = signers()
const token = svid(keys.ed, 'module/m1')
const target = (key: string): string => `/provision/config/${encodeURIComponent(key)}`

t.test('the event stream', async (t) => {
  const { server, prov } = await fixture(t)
  const bus = await proxy(t, server.port)
  const gateway = await startGateway(t, { natsUrl: bus.url, keys, ready: true, env: { ASK_TIMEOUT_MS: '600', MAX_CONNECTIONS_PER_MODULE: '40' } })
  const open = (key: string, headers = {}, who = token) => sse(t, gateway.port, target(key), { token: who, headers })

  await t.test('opens with the value and its id, then hands each change once, in order', async (t) => {
    const stream = await open('port')
    t.match({ status: stream.status, headers: stream.headers }, {
      status: 200,
      headers: { 'content-type': /^text\/event-stream/, 'cache-control': 'private, no-cache', vary: 'Accept, Authorization, Origin', 'x-accel-buffering': 'no' }
    })
    const first = await eventually('it opens', () => stream.named('value')[0])
    const etag = (await http(gateway.port, 'GET', target('port'), { token })).headers.etag
    t.same(first.json, { kind: 'config', key: 'port', value: 8080, etag })
    t.equal(`"${first.id}"`, etag, 'the id is the ETag without its quotes')
    prov.change('m1/config/port', { value: 1 })
    await eventually('the change', () => stream.named('value').length === 2)
    prov.tell('m1', 'config', 'port')
    prov.change('m1/config/port', { refused: 'taken off' })
    const refused = await eventually('the refusal', () => stream.named('refused')[0])
    t.same(refused.json, { kind: 'config', key: 'port', refused: 'taken off' })
    t.match(refused.id, /^refused\./)
    prov.change('m1/config/port', { value: 1 })
    await eventually('the value after it', () => stream.named('value').length === 3)
    t.same(stream.events().map(({ event, json }) => [event, json?.value]), [['value', 8080], ['value', 1], ['refused', undefined], ['value', 1]])
    prov.change('m1/config/port', { value: 8080 })
  })

  await t.test('comes back with Last-Event-ID: live where it knows what stands, the value where it does not', async (t) => {
    const known = (await eventually('the value', async () => (await open('port')).until(({ event }) => event === 'value')))?.id
    const again = await open('port', { 'Last-Event-ID': known })
    await eventually('live', () => again.named('live').length === 1)
    t.same(again.events().map(({ event, json }) => ({ event, json })), [{ event: 'live', json: { kind: 'config', key: 'port' } }])
    const other = await open('port', { 'Last-Event-ID': 'another' })
    t.ok(await other.until(({ event }) => event === 'value'))
    prov.set('m1/config/gone', { refused: 'gone' })
    const refusal = await (await open('gone')).until(({ event }) => event === 'refused')
    const back = await open('gone', { 'Last-Event-ID': refusal?.id })
    t.ok(await back.until(({ event }) => event === 'live'), 'a refusal has an id of its own')
  })

  await t.test('opens whatever the value is just now, but not for a name that is none or a secret', async (t) => {
    t.match(await (await open('nowhere')).until(() => true), { event: 'refused', json: { key: 'nowhere' } })
    prov.set('m1/config/mute', { silent: true })
    const mute = await open('mute')
    t.match(await mute.until(() => true), { event: 'stale', json: { key: 'mute', since: /^\d{4}-.*Z$/ } })
    prov.change('m1/config/mute', { value: 'here' })
    t.match(await mute.until(({ event }) => event === 'value'), { json: { value: 'here' } })
    t.match(await open('a\tb'), { status: 400, json: { type: 'urn:mesh-gateway:problem:invalid' } })
    t.match(await sse(t, gateway.port, '/provision/secret/x', { token }), { status: 403, json: { type: 'urn:mesh-gateway:problem:refused' } })
    t.match(await open('port', {}, 'none'), { status: 401 })
    t.match(await open('port', {}, svid(keys.ed, 'operator/alice')), { status: 403 })
  })

  await t.test('is asked for by Accept alone; HEAD and others get the value', async (t) => {
    for (const accept of ['text/event-stream', 'text/event-stream;q=0.9, */*;q=0.1', 'application/json, text/event-stream']) {
      t.match((await open('port', { Accept: accept })).headers['content-type'], /^text\/event-stream/, accept)
    }
    for (const accept of ['*/*', 'application/json', 'application/json, text/event-stream;q=0.5', 'text/event-stream;q=0']) {
      t.match(await open('port', { Accept: accept }), { status: 200, body: '8080' }, accept)
    }
    t.match(await http(gateway.port, 'HEAD', target('port'), { token, headers: { Accept: 'text/event-stream' } }), { status: 200, headers: { 'content-length': '4' } })
  })

  await t.test('a value with line ends in it is one event; a page of an allowed origin may read it', async (t) => {
    prov.set('m1/config/lines', { raw: '{\n "a": [1,\r\n2]\r}' })
    const stream = await open('lines', { Origin: DASH })
    t.same((await stream.until(() => true))?.json?.value, { a: [1, 2] })
    t.equal(stream.headers['access-control-allow-origin'], DASH)
  })

  await t.test('ends when the credential does; one that has expired opens none', async (t) => {
    const exp = nowS() + 2
    const stream = await open('port', {}, svid(keys.ed, 'module/m1', { exp }))
    t.ok(await stream.untilClosed(5000))
    t.ok(stream.closedAt >= exp * 1000 && stream.closedAt < exp * 1000 + 1000, 'at its end itself')
    t.equal((await open('port', {}, svid(keys.ed, 'module/m1', { exp: nowS() - 2 }))).status, 401)
  })

  await t.test('R1: a cut bus is `stale`, then `live` or the change; stale-if-error gives the last value with its Age', async (t) => {
    prov.set('m1/config/cut', { value: 1 }).set('m1/config/still', { value: 'same' }).set('m1/config/no', { refused: 'no' })
    const [moving, still] = [await open('cut'), await open('still')]
    for (const stream of [moving, still]) t.ok(await stream.until(({ event }) => event === 'value'))
    await http(gateway.port, 'GET', target('no'), { token })
    bus.cut()
    for (const stream of [moving, still]) t.ok(await stream.until(({ event }) => event === 'stale'))
    const get = (key: string, cache?: string) => http(gateway.port, 'GET', target(key), { token, headers: cache ? { 'Cache-Control': cache } : {} })
    t.match(await get('cut'), { status: 503, headers: { 'retry-after': /\d/ } })
    const last = await get('cut', 'stale-if-error=60')
    t.match(last, { status: 200, body: '1', headers: { age: /^\d+$/, etag: /^"/ } })
    t.match(await http(gateway.port, 'GET', target('cut'), { token, headers: { 'Cache-Control': 'stale-if-error=60', 'If-None-Match': last.headers.etag } }),
      { status: 200 }, 'no 304 while it is not known current')
    t.equal((await get('cut', 'stale-if-error=0')).status, 503, 'not older than asked for')
    t.equal((await get('cut', 'stale-if-error')).status, 503)
    t.equal((await get('no', 'stale-if-error=60')).status, 503, 'never once a refusal was heard')
    t.equal((await get('never-asked', 'stale-if-error=60')).status, 503)
    prov.set('m1/config/cut', { value: 2 })
    bus.mend()
    t.match(await moving.until(({ json }) => json?.value === 2, 5000), { event: 'value' })
    t.ok(await still.until(({ event }) => event === 'live', 5000))
    t.same(moving.events().map(({ event }) => event), ['value', 'stale', 'value'])
    t.same(still.events().map(({ event }) => event), ['value', 'stale', 'live'])
  })

  await t.test('one connection too many of a module is 429; those that went leave their places', async (t) => {
    const streams = [await open('port')]
    while (streams.at(-1)?.status === 200) streams.push(await open('port'))
    t.match(streams.at(-1), { status: 429, headers: { 'retry-after': /\d/ }, json: { type: 'urn:mesh-gateway:problem:too-many-requests' } })
    for (const stream of streams) stream.end()
    await eventually('places are free', async () => (await open('port')).status === 200)
  })

  await t.test('a client that leaves while its token is verified leaves no place taken', async (t) => {
    /** How many streams can be opened now. */
    const places = async (): Promise<number> => {
      const streams = await Promise.all(Array.from({ length: 45 }, () => open('port')))
      for (const stream of streams) stream.end()
      await eventually('places are free', async () => { const one = await open('port'); one.end(); return one.status === 200 })
      return streams.filter(({ status }) => status === 200).length
    }
    const before = await places()
    for (let n = 0; n < 120; n++) {
      const gone = connect(gateway.port, HOST)
      gone.on('error', () => undefined)
      const fresh = svid(keys.rs, 'module/m1', { jti: String(n) })
      gone.write(`GET ${target('port')} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: Bearer ${fresh}\r\n\r\n`, () => gone.destroy())
      await eventually('it is gone', () => gone.closed)
    }
    t.ok(await eventually('all places are free again', async () => await places() === before, 10_000))
  })

  await t.test('a silent stream hears a comment every 15 s; a draining gateway says when to come back, and ends it', async (t) => {
    const stream = await open('port')
    await eventually('a comment', () => stream.comments > 0, 20_000)
    await gateway.stop()
    t.ok(await stream.untilClosed())
    t.equal(stream.comments, 1)
  })
})

t.test('W2: clients that do not read hold neither memory nor the others', async (t) => {
  const { server, prov } = await fixture(t)
  const gateway = await startGateway(t, { natsUrl: server.url, keys, ready: true, env: { SLOW_CLIENT_MS: '60000' } })
  const big = (n: number): { value: string } => ({ value: `${n} ${'x'.repeat(64 * 1024)}` })
  prov.set('m1/config/big', big(0))
  const [mute, reading] = [await ws(t, gateway.port, { token }), await ws(t, gateway.port, { token })]
  const stream = await sse(t, gateway.port, target('big'), { token })
  for (const client of [mute, reading]) await client.watch('config', 'big')
  await stream.until(({ event }) => event === 'value')
  mute.pause()
  stream.socket.pause()
  const rss = (): number => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${gateway.process.pid}/status`, 'utf8'))?.[1]) * 1024
  const changes = 600
  const asked = prov.askedOf('m1/config/big')
  const before = rss()
  for (let n = 1; n <= changes; n++) {
    prov.change('m1/config/big', big(n))
    // One after the other, as fast as a reader takes them: words in a burst would be answered by one ask.
    await eventually(`change ${n} arrives`, () => reading.notes('provision.changed').length === n, 10_000)
  }
  t.ok(rss() - before < 64 * 1024 * 1024, `${Math.round((rss() - before) / 1024 / 1024)} MiB more for ${changes * 64} KiB that were not read twice`)
  t.ok(prov.askedOf('m1/config/big') - asked <= changes + 1, 'no more asks than changes')
  mute.resume()
  stream.socket.resume()
  const last = `${changes} `
  await eventually('the newest', () => mute.changes('big').some(({ value }) => String(value).startsWith(last)), 10_000)
  const skipped = mute.changes('big').reduce((sum, change) => sum + Number(change.skipped ?? 0), 0)
  t.ok(skipped > 100, `skipped ${skipped}`)
  t.ok(mute.changes('big').length < changes / 2, 'and few between')
  t.equal(mute.changes('big').length + skipped, changes, 'each change was handed or counted')
  await eventually('the stream too', () => stream.named('value').some(({ json }) => String(json?.value).startsWith(last)), 10_000)
})

t.test('a client that reads nothing for SLOW_CLIENT_MS is closed with 4508; one that reads slowly is not', async (t) => {
  const { server, prov } = await fixture(t)
  const gateway = await startGateway(t, { natsUrl: server.url, keys, ready: true, env: { SLOW_CLIENT_MS: '2500' } })
  const big = (n: number): { value: string } => ({ value: `${n} ${'x'.repeat(512 * 1024)}` })
  prov.set('m1/config/big', big(0))
  const [mute, slow, reading] = [await ws(t, gateway.port, { token }), await ws(t, gateway.port, { token }), await ws(t, gateway.port, { token })]
  const stream = await sse(t, gateway.port, target('big'), { token })
  for (const client of [mute, slow, reading]) await client.watch('config', 'big', {}, 10_000)
  await stream.until(({ event }) => event === 'value')
  for (const { socket } of [mute, slow, stream]) socket.pause()
  // More than the kernel holds for a connection.
  for (let n = 1; n <= 40; n++) {
    prov.change('m1/config/big', big(n))
    await eventually(`change ${n} arrives`, () => reading.notes('provision.changed').length === n, 10_000)
  }
  // A little now and then, so that the kernel takes a little more, for longer than one may read nothing.
  const took = (): boolean => {
    slow.socket.read(64 * 1024)
    return gateway.logged(/watch closed/).length > 0
  }
  await eventually('the mute one is closed', took, 20_000)
  t.match(gateway.logged(/watch closed/), [{ code: 4508 }], 'it alone')
  slow.resume()
  await eventually('the slow one has the newest', () => slow.changes('big').some(({ value }) => String(value).startsWith('40 ')), 10_000)
  stream.socket.resume()
  t.ok(await stream.untilClosed(10_000), 'the stream that was not read is ended, too')
})

t.test('the event stream is one that fetch reads', async (t) => {
  const { prov, gateway } = await gatewayOnFixture(t, { keys })
  const response = await fetch(`${gateway.url}${target('port')}`, { headers: { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' } })
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  const first = Buffer.from((await reader.read()).value ?? []).toString()
  t.match(first, /^event: value\nid: \S+\ndata: \{"kind":"config","key":"port","value":8080,"etag":"[^\n]+"\}\n\n$/)
  prov.change('m1/config/port', { value: 8081 })
  t.match(Buffer.from((await reader.read()).value ?? []).toString(), /"value":8081/)
  await reader.cancel()
})
