/** Settings over HTTP on a real bus: what is checked, under which condition, what is written, and that it is composed (DESIGN section 6). */
import t from 'tap'
import { fp } from './support/bus/buckets.js'
import { keys, post, stage, type Stage } from './support/take-in.js'
import { eventually } from './support/until.js'
import { http, type HttpOptions, type HttpResult } from './support/wire/http.js'
import { svid } from './support/wire/signing.js'

const tokens = { operator: svid(keys.ed, 'operator/alice'), reader: svid(keys.ed, 'reader/grafana'), module: svid(keys.ed, 'module/m1') }
const json = { 'Content-Type': 'application/json' }

type On = Pick<Stage, 'gateway'>
const put = ({ gateway }: On, path: string, body: string, { headers = {}, token = tokens.operator }: HttpOptions = {}): Promise<HttpResult> =>
  http(gateway.port, 'PUT', `/modules/${path}`, { token, headers: { ...json, ...headers }, body, wait: 20_000 })
const unset = ({ gateway }: On, path: string, { headers = {}, token = tokens.operator }: HttpOptions = {}): Promise<HttpResult> =>
  http(gateway.port, 'DELETE', `/modules/${path}`, { token, headers, wait: 20_000 })
const problem = (name: string) => `urn:mesh-gateway:problem:${name}`

const manifest = {
  module: 'm1',
  config: {
    port: { default: { high: 1 }, schema: { type: 'object', properties: { high: { type: 'integer', maximum: 9 } } } },
    any: { default: null },
    needed: { schema: { type: 'string' } },
    'a/b é': { default: 1 },
    'x.y': { default: 0 }
  }
}

/** m1 on n1 and n2, taken in. */
async function taken (on: Stage): Promise<void> {
  await on.buckets.ready('m1', 'a', ['n1', 'n2'], manifest)
  await on.buckets.put('settings', 'm1', { needed: 'yes' })
  const { json: { outcome, detail } } = await post(on, 'm1')
  if (outcome !== 'taken-in') throw new Error(detail)
}

t.test('a setting is written, composed and recorded; the same again writes nothing; and back to the default', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  await taken(on)
  const set = await put(on, 'm1/config/any', '{"b": 1.50, "a": [true, null, "é"]}')
  t.match(set, { status: 200, headers: { etag: /^"[\w-]{22}"$/, 'cache-control': 'no-store' } })
  t.match(set.json, {
    module: 'm1', key: 'any', set: true, value: { a: [true, null, 'é'], b: 1.5 }, etag: set.headers.etag, written: true, takeIn: { outcome: 'composed', composed: ['n1', 'n2'], said: /composed n1, n2/ }
  })
  t.same(await buckets.get('settings', 'm1'), { any: { a: [true, null, 'é'], b: 1.5 }, needed: 'yes' })
  for (const node of ['n1', 'n2']) t.match(await buckets.composition(node, 'm1'), { config: { any: { b: 1.5 }, port: { high: 1 } } })
  const record = await buckets.get('takeins', 'm1')
  t.match(record, { outcome: 'composed', by: ['operator alice set config "any"'] })
  t.notMatch(JSON.stringify(record), /1\.5|é/, 'the value is not in the record')
  t.notMatch(JSON.stringify(on.gateway.log), /1\.5|é/, 'nor in the log')

  const before = spy.writes.length
  const again = await put(on, 'm1/config/any', '{"a":[true,null,"\\u00e9"],"b":15e-1}')
  t.match(again, { status: 200, headers: { etag: set.headers.etag }, json: { written: false, takeIn: { outcome: 'current', composed: [] } } })
  t.match(await unset(on, 'm1/config/port'), { status: 200, headers: { etag: undefined }, json: { set: false, written: false, value: undefined, takeIn: { outcome: 'current' } } })
  t.equal(spy.writes.length, before, 'not even a record')

  t.match(await unset(on, 'm1/config/any'), { status: 200, json: { module: 'm1', key: 'any', set: false, written: true, takeIn: { outcome: 'composed', composed: ['n1', 'n2'] } } })
  t.same(await buckets.get('settings', 'm1'), { needed: 'yes' })
  t.match(await buckets.composition('n1', 'm1'), { config: { any: null } })
  t.match(await buckets.get('takeins', 'm1'), { by: ['operator alice unset config "any"'] })
  for (const [key, body] of [['a%2Fb%20%C3%A9', 'false'], ['x.y', '""'], ['any', '0'], ['any', 'null']] as const) {
    t.match(await put(on, `m1/config/${key}`, body), { status: 200, json: { key: decodeURIComponent(key), value: JSON.parse(body) } }, key)
  }
  t.same(await buckets.get('settings', 'm1'), { needed: 'yes', 'a/b é': false, 'x.y': '', any: null })
})

t.test('what cannot stand is refused with a sentence, and nothing is written', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  await taken(on)
  await buckets.hold('held')
  const before = spy.writes.length
  const misfit = await put(on, 'm1/config/port', '{"high": 10}')
  t.match(misfit, { status: 422, json: { type: problem('schema'), path: '/high', rule: '#/properties/high/maximum', detail: /"port" of m1 does not take that: the value at \/high must be <= 9/ } })
  const refused: Array<[string, string, HttpOptions['headers'], number, string, RegExp]> = [
    ['none/config/any', '1', {}, 404, 'not-held', /inventory module.none/],
    ['held/config/any', '1', {}, 404, 'not-declared', /held was never taken in/],
    ['m1/config/none', '1', {}, 404, 'not-declared', /declares no config key "none"/],
    ['m1/config/__proto__', '1', {}, 404, 'not-declared', /declares no config key "__proto__"/],
    ['m1/config/any', '', {}, 400, 'invalid', /the body is empty/],
    ['m1/config/any', '{', {}, 400, 'invalid', /is no JSON/],
    ['m1/config/any', '12345678901234567890', {}, 400, 'invalid', /12345678901234567890, which no double holds/],
    ['m1/config/any', '['.repeat(100) + ']'.repeat(100), {}, 400, 'invalid', /nests deeper/],
    ['m1/config/any', '1', { 'Content-Type': 'text/plain' }, 415, 'unsupported-media-type', /not JSON/],
    ['m1/config/any', `"${'x'.repeat(990 * 1024)}"`, {}, 413, 'too-large', /983040 is the most/],
    ['m1/config/any', `"${'x'.repeat(1100 * 1024)}"`, {}, 413, 'too-large', /larger than 1048576 bytes/],
    ['M1/config/any', '1', {}, 400, 'invalid', /none of a module/],
    [`m1/config/${'k'.repeat(257)}`, '1', {}, 400, 'invalid', /longer than 256/]
  ]
  for (const [path, body, headers, status, name, detail] of refused) {
    t.match(await put(on, path, body, { headers }), { status, json: { type: problem(name), detail }, headers: { 'content-type': /^application\/problem\+json/ } }, `${path.slice(0, 40)} ${status}`)
  }
  t.match(await unset(on, 'm1/config/needed'), { status: 422, json: { type: problem('schema'), detail: /has no default to go back to/ } })
  t.match(await unset(on, 'm1/config/none'), { status: 404, json: { type: problem('not-declared') } })
  for (const token of [tokens.reader, tokens.module]) {
    t.equal((await put(on, 'm1/config/any', '1', { token })).status, 403)
    t.equal((await unset(on, 'm1/config/any', { token })).status, 403)
  }
  t.match(await http(on.gateway.port, 'POST', '/modules/m1/config/any', { token: tokens.operator }), { status: 405, headers: { allow: 'DELETE, PUT' } })
  t.equal(spy.writes.length, before)

  // A composition holds the largest that is taken.
  t.match(await put(on, 'm1/config/any', `"${'x'.repeat(950 * 1024)}"`), { status: 200, json: { takeIn: { outcome: 'composed' } } })
  await buckets.put('settings', 'm1', 'rubbish')
  t.match(await put(on, 'm1/config/any', '1'), { status: 412, json: { type: problem('precondition-failed'), detail: /settings m1 is no JSON: mend that document first/ } })
})

t.test('If-Match and If-None-Match: a write lands on what its author has seen, or not at all', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  await taken(on)
  const stale = { status: 412, json: { type: problem('precondition-failed'), module: 'm1', key: 'any' } }
  t.match(await put(on, 'm1/config/any', '1', { headers: { 'If-Match': '*' } }), { ...stale, json: { ...stale.json, set: false } }, 'there is none')
  const { headers: { etag = '' } } = await put(on, 'm1/config/any', '1', { headers: { 'If-None-Match': '*' } })
  t.match(await put(on, 'm1/config/any', '2', { headers: { 'If-None-Match': '*' } }), { ...stale, json: { ...stale.json, set: true, value: 1, etag } }, 'there is one')
  t.match(await put(on, 'm1/config/any', '2', { headers: { 'If-Match': '"another"' } }), stale)
  t.match(await put(on, 'm1/config/any', '2', { headers: { 'If-Match': `W/${etag}` } }), stale, 'a weak one names none')
  t.match(await unset(on, 'm1/config/any', { headers: { 'If-Match': '"another"' } }), stale)
  const next = await put(on, 'm1/config/any', '2', { headers: { 'If-Match': `"x", ${etag}` } })
  t.equal(next.status, 200)
  t.match(await put(on, 'm1/config/any', '3', { headers: { 'If-Match': etag } }), stale)
  const shown = await http(on.gateway.port, 'GET', '/modules/m1', { token: tokens.reader })
  t.match(shown.json.config.find(({ key }: { key: string }) => key === 'any'), { set: true, setting: 2, default: null })
  await eventually('the state has its ETag', async () => {
    const { json } = await http(on.gateway.port, 'GET', '/modules/m1', { token: tokens.reader })
    return json.config.find(({ key }: { key: string }) => key === 'any').etag === next.headers.etag
  })
  t.match(await unset(on, 'm1/config/any', { headers: { 'If-Match': '*' } }), { status: 200, json: { set: false, written: true } })

  // Many at once, each another key: none is lost; and of many on one key with the same If-Match, one lands.
  const config = Object.fromEntries(Array.from({ length: 12 }, (_, n) => [`k${n}`, { default: 0 }]))
  await buckets.done('m1', 'b', { module: 'm1', config })
  await buckets.trunk('m1', 'b')
  t.equal((await post(on, 'm1')).json.outcome, 'taken-in')
  const all = await Promise.all(Object.keys(config).map((key, n) => put(on, `m1/config/${key}`, String(n + 1))))
  t.same(all.map(({ status }) => status), all.map(() => 200))
  t.same(await buckets.get('settings', 'm1'), { needed: 'yes', ...Object.fromEntries(Object.keys(config).map((key, n) => [key, n + 1])) })
  t.match((await buckets.composition('n2', 'm1'))?.config, { k0: 1, k11: 12 })
  t.match(await unset(on, 'm1/config/needed'), { status: 200, json: { set: false, written: true } }, 'what an older manifest left behind can be taken away')
  const first = all[0]?.headers.etag ?? ''
  const raced = await Promise.all(Array.from({ length: 5 }, (_, n) => put(on, 'm1/config/k0', String(100 + n), { headers: { 'If-Match': first } })))
  t.same(raced.map(({ status }) => status).sort(), [200, 412, 412, 412, 412])
})

t.test('TAKE_IN=auto: the run that composes a setting is that of whoever set it, and the only one', async (t) => {
  const on = await stage(t, { env: { TAKE_IN: 'auto' } })
  const { buckets, spy } = on
  await buckets.node('n1')
  await buckets.ready('m1', 'a', ['n1', 'n2'], manifest)
  await buckets.put('settings', 'm1', { needed: 'yes' })
  await eventually('it is taken in', () => buckets.get('grants', `m1.${fp('a')}`))
  // A run that begins now ends after all that were woken before it.
  t.equal((await post(on, 'm1')).json.outcome, 'current')
  const before = spy.writes.length
  t.match((await put(on, 'm1/config/any', '5')).json, { written: true, takeIn: { outcome: 'composed', composed: ['n1', 'n2'] } })
  t.equal((await post(on, 'm1')).json.outcome, 'current')
  t.same(spy.writes.slice(before).filter(({ bucket }) => bucket === 'takeins').map(({ value }) => value.by), [['operator alice set config "any"'], ['operator alice']])
  await buckets.put('settings', 'm1', { needed: 'yes', any: 6 })
  await eventually('a setting by other tools is composed', async () => (await buckets.composition('n1', 'm1'))?.config.any === 6)
})

t.test('a take-in that fails after the write says that the setting is written; a repeat goes on from there', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  await taken(on)
  await buckets.put('inventory', 'node.n2', { node: 'n2', curve: 'X' })
  const failed = await put(on, 'm1/config/any', '5')
  t.match(failed, {
    status: 500,
    json: { type: problem('step-failed'), step: 'compose', module: 'm1', key: 'any', written: true, set: true, detail: /^the setting is written, but the step compose failed: inventory node.n2 does not fit/ }
  })
  t.match(await buckets.get('settings', 'm1'), { any: 5 })
  t.match(await put(on, 'm1/config/any', '5'), { status: 500, json: { written: false, detail: /^the setting stands as it is, but/ } })
  await buckets.node('n2')
  t.match(await put(on, 'm1/config/any', '5'), { status: 200, json: { written: false, takeIn: { outcome: 'composed', composed: ['n2'] } } })
  t.match(await buckets.composition('n2', 'm1'), { config: { any: 5 }, fp: fp('a') })
})
