/** What dashboards read of a mesh on a real bus: where each module stands, why, and what is never said (DESIGN section 6). */
import t from 'tap'
import { Mirror } from '../src/nats/mirror.js'
import { commitOf, fp, mesh } from './support/bus/buckets.js'
import { client } from './support/bus/client.js'
import { natsServer } from './support/bus/nats-server.js'
import { keys, post, stage, type Stage } from './support/take-in.js'
import { eventually } from './support/until.js'
import { http, type HttpOptions, type HttpResult } from './support/wire/http.js'
import { svid } from './support/wire/signing.js'

const tokens = { operator: svid(keys.ed, 'operator/alice'), reader: svid(keys.ed, 'reader/grafana'), module: svid(keys.ed, 'module/m1') }

const get = ({ gateway }: Pick<Stage, 'gateway'>, path: string, { token = tokens.reader, ...more }: HttpOptions = {}): Promise<HttpResult> =>
  http(gateway.port, 'GET', path, { token, ...more })

/** Waits until an answer is like that: what is read is a moment old. */
const becomes = async (on: Pick<Stage, 'gateway'>, path: string, holds: (json: HttpResult['json']) => boolean): Promise<HttpResult['json']> => {
  let last: HttpResult['json']
  try {
    return await eventually(path, async () => {
      const { json } = await get(on, path)
      last = json
      return json && holds(json) && json
    })
  } catch (error) {
    throw new Error(`${String(error)}: ${JSON.stringify(last)}`)
  }
}
const stands = (on: Pick<Stage, 'gateway'>, module: string, where: string) => becomes(on, `/modules/${module}`, (json) => json.where === where)

t.test('a module is followed from nothing to its end: one word each time, and a sentence that says why', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  t.match(await get(on, '/modules'), { status: 200, json: { modules: [], total: 0 } })
  t.match(await get(on, '/modules/m1'), { status: 404, json: { type: 'urn:mesh-gateway:problem:not-held' } })

  await buckets.hold('m1')
  t.match(await stands(on, 'm1', 'never-taken-in'), { why: /it has no trunk value/, trunk: null, registered: null, assignment: 'absent', last: null })
  await buckets.trunk('m1', 'a')
  t.match(await stands(on, 'm1', 'waiting'), { why: /fp2-aaaaaaaa \(aaaaaaaa\), whose build is not there/, trunk: { fp: fp('a'), commit: commitOf('a') } })
  await buckets.done('m1', 'a', {
    module: 'm1', config: { port: { default: 8080, schema: { type: 'integer' } }, name: { default: 'x' } }, secrets: ['key'], offers: { url: 'http://m1' }
  })
  await buckets.assign('m1', ['n2', 'n1'])
  t.match(await stands(on, 'm1', 'never-taken-in'), { why: /whose build is there, and nothing is registered. Take it in/ })

  await post(on, 'm1')
  const current = await stands(on, 'm1', 'current')
  const revisions = { n1: await buckets.meshRevision('compositions', 'n1.m1'), n2: await buckets.meshRevision('compositions', 'n2.m1') }
  const at = { fp: fp('a'), commit: commitOf('a') }
  t.match(current, {
    why: 'm1 at fp2-aaaaaaaa is current on n1, n2',
    trunk: at,
    registered: at,
    assignment: 'stands',
    nodes: Object.entries(revisions).map(([node, revision]) => ({ node, assigned: true, where: 'current', composition: { ...at, revision, user: /^U[A-Z2-7]{55}$/ } })),
    config: [{ key: 'name', set: false, default: 'x' }, { key: 'port', set: false, default: 8080 }],
    secrets: ['key'],
    offers: [{ name: 'url', to: [] }],
    grants: [{ ...at, nodes: revisions }],
    last: { outcome: 'taken-in', by: ['operator alice'] },
    problems: []
  })

  await buckets.put('settings', 'm1', { port: 'x' })
  t.match(await stands(on, 'm1', 'behind'), { why: /setting of config "port" of m1 does not fit: the value must be integer.*Mend that, then take it in/ })
  await post(on, 'm1')
  t.match(await stands(on, 'm1', 'failing'), {
    why: /^the last take-in failed at compose: .*"port" of m1 does not fit/, nodes: [{ where: 'failing', why: /"port"/, composition: at }, { where: 'failing' }], last: { outcome: 'step-failed' }
  })
  await buckets.put('settings', 'm1', { port: 1 })
  t.match(await stands(on, 'm1', 'failing'), { config: [{ key: 'name' }, { key: 'port', set: true, setting: 1, default: 8080, etag: /^"[\w-]+"$/ }] })
  await becomes(on, '/modules/m1', ({ why }) => /on n1, what stands differs at \/config\/port.*A take-in mends it/.test(why))
  await buckets.delete('settings', 'm1')
  await stands(on, 'm1', 'current')
  t.equal((await post(on, 'm1')).json.outcome, 'current')

  await buckets.trunk('m1', 'b')
  t.match(await stands(on, 'm1', 'waiting'), { nodes: [{ where: 'waiting', why: /carries fp2-aaaaaaaa, as registered, and its trunk value names fp2-bbbbbbbb/ }, {}] })
  await buckets.trunk('m1', 'a')
  await stands(on, 'm1', 'current')

  await buckets.assign('m1', ['n1'])
  t.match(await stands(on, 'm1', 'behind'), { why: /it still stands on n2, which it left/ })
  t.match((await get(on, '/nodes/n2')).json, { modules: [{ module: 'm1', held: true, assigned: false, where: 'unassigned', why: /left this node: a take-in clears it/ }] })
  await post(on, 'm1')
  await stands(on, 'm1', 'current')
  t.match((await get(on, '/nodes/n2')).json, { node: 'n2', modules: [], total: 0 })

  await buckets.delete('inventory', 'assignment.m1')
  await stands(on, 'm1', 'behind')
  t.equal((await post(on, 'm1')).json.outcome, 'unassigned')
  t.match(await stands(on, 'm1', 'unassigned'), { why: 'm1 at fp2-aaaaaaaa is assigned to no node', assignment: 'deleted', nodes: [], grants: [] })

  await buckets.assign('m1', ['n1'])
  await post(on, 'm1')
  await stands(on, 'm1', 'current')
  await buckets.delete('inventory', 'module.m1')
  await eventually('it is not in the catalogue', async () => (await get(on, '/modules/m1')).status === 404)
  t.match((await get(on, '/modules/m1')).json.detail, /still stands on n1/)
  t.match((await get(on, '/nodes/n1')).json, { modules: [{ module: 'm1', held: false, where: 'unassigned', why: /was removed from the catalogue/ }] })
  await post(on, 'm1')
  await becomes(on, '/nodes/n1', ({ total }) => total === 0)
})

t.test('what does not fit is told with its key and reason, and disturbs nobody else', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  await buckets.holder('bus', 'n3')
  await post(on, 'bus')
  for (const module of ['m1', 'm2', 'm3', 'm4', 'm5']) await buckets.ready(module, 'a', ['n1'])
  for (const module of ['m1', 'm2', 'm3', 'm4']) t.equal((await post(on, module)).status, 200)
  await becomes(on, '/modules?where=current', ({ total }) => total === 5)
  await buckets.put('trunk', 'm1', { fp: 'fp2-short', commit: 'c' })
  await buckets.put('settings', 'm2', 'rubbish')
  await buckets.put('inventory', 'binding.m3', { url: 'rubbish' })
  await buckets.put('inventory', 'module.m5', { module: 'm1' })
  await buckets.put('grants', `m4.${fp('b')}`, 'rubbish')
  await buckets.put('inventory', 'module.Not-A-Name', 'rubbish')
  const { modules } = await becomes(on, '/modules?where=behind,failing', ({ total }) => total === 4)
  t.match(modules.map(({ module, problems }: { module: string, problems: object[] }) => ({ module, problems })), [
    { module: 'm1', problems: [{ key: 'trunk m1', why: /not fp2- and 64 hex digits/ }] },
    { module: 'm2', problems: [{ key: 'settings m2', why: /is no JSON/ }] },
    { module: 'm4', problems: [{ key: `grants m4.${fp('b')}`, why: /is no JSON/ }] },
    { module: 'm5', problems: [{ key: 'inventory module.m5', why: /names another module, m1/ }] }
  ])
  t.match((await get(on, '/modules/m3')).json, { where: 'current', problems: [{ key: 'inventory binding.m3', why: /does not fit at \/url/ }] }, 'it declares no bound key')
  t.match((await get(on, '/modules/bus')).json, { where: 'current' })

  // A bucket that lost the assignment: nothing is removed, and the state says that something still stands.
  await buckets.hold('lost')
  await buckets.registered('lost', 'a', { module: 'lost' }, '1.1')
  await buckets.put('compositions', 'n2.lost', { ...await buckets.composition('n1', 'm4'), node: 'n2', module: 'lost', config: {} })
  const lost = await becomes(on, '/modules/lost', ({ nodes }) => nodes.length === 1)
  t.match(lost, { assignment: 'absent', nodes: [{ node: 'n2', assigned: false, where: 'unassigned', why: /nobody deleted one: write assignment.lost, or delete it/ }] })
  await post(on, 'bus')
  t.match(await stands(on, 'lost', 'unassigned'), { why: /has no assignment, and nobody deleted one: it still stands on n2/ })

  await buckets.put('inventory', 'node.n1', { node: 'n1', curve: 'X' })
  t.match(await becomes(on, '/nodes/n1', ({ problem }) => problem !== undefined), { curve: null, problem: /^inventory node.n1 does not fit at \/curve/ })
  t.match((await get(on, '/nodes/n3')).json, { broker: true, curve: /^X/, modules: [{ module: 'bus', where: 'current' }] })
  await buckets.put('inventory', 'seat.broker', 'rubbish')
  await becomes(on, '/modules/bus', ({ where, why }) => where === 'behind' && /inventory seat.broker is no JSON/.test(why))

  for (const path of ['/modules?limit=1000', '/modules/m4', '/modules/m4/take-ins', '/nodes', '/nodes/n1']) {
    t.notMatch((await get(on, path)).body, /sealed|"by":"X|SU[A-Z2-7]{56}/, `nothing of a credential in ${path}`)
  }
})

t.test('a ring of bindings is seen before a take-in fails by it: on the one that closed it, and on no other', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  const bind = (module: string, to: string) => buckets.put('inventory', `binding.${module}`, { url: { module: to, offer: 'url' } })
  for (const module of ['a', 'b', 'c']) {
    await buckets.ready(module, 'a', ['n1'], { module, offers: { url: module }, bound: { url: {} } })
    await buckets.registered(module, 'a', { module, offers: { url: module }, bound: { url: {} } })
  }
  await bind('a', 'b')
  await bind('b', 'c')
  await bind('c', 'c')
  const rings = async () => Promise.all(['a', 'b', 'c'].map(async (name) => /go round, (.*?),/.exec((await get(on, `/modules/${name}`)).json.why)?.[1]))
  const told = (ring: string) => becomes(on, '/modules/c', ({ where, why }) => where === 'behind' && why.includes(`its bindings go round, ${ring}, since binding.c was written last`))
  await told('c → c')
  t.same(await rings(), [undefined, undefined, 'c → c'])
  await bind('c', 'a')
  await told('c → a → b → c')
  t.same(await rings(), [undefined, undefined, 'c → a → b → c'])
  t.match(await post(on, 'c'), { status: 500, json: { step: 'compose', detail: /c → a → b → c/ } })
  for (const module of ['a', 'b']) t.equal((await post(on, module)).status, 200)
  t.same(await becomes(on, '/modules?where=current', ({ total }) => total === 2).then(({ modules }) => modules.map(({ module }: { module: string }) => module)), ['a', 'b'])
  // Broken at its other end.
  await buckets.put('inventory', 'binding.b', {})
  await becomes(on, '/modules/c', ({ why }) => !/go round/.test(why) || /Still: (?!.*go round)/.test(why))
})

t.test('lists come in pages, are filtered, and are answered 304 where nothing moved', async (t) => {
  const on = await stage(t, { nodes: ['n1', 'n2'] })
  const { buckets } = on
  const names = ['a', 'b', 'c', 'd', 'e']
  for (const module of names) await buckets.hold(module)
  await buckets.trunk('c', 'a')
  await buckets.assign('d', ['n1', 'n3'])
  await becomes(on, '/modules?node=n3', ({ total }) => total === 1)

  const paged: string[] = []
  let path: string | undefined = '/modules?limit=2'
  while (path) {
    const { json }: HttpResult = await get(on, path)
    t.equal(json.total, 5)
    paged.push(...json.modules.map(({ module }: { module: string }) => module))
    path = json.next === undefined ? undefined : `/modules?limit=2&after=${json.next}`
  }
  t.same(paged, names)
  const list = async (query: string) => (await get(on, `/modules?${query}`)).json.modules.map(({ module }: { module: string }) => module)
  t.same(await list('where=waiting'), ['c'])
  t.same(await list('where=waiting,never-taken-in&limit=3'), ['a', 'b', 'c'])
  t.same(await list('where=waiting&where=current'), ['c'])
  t.same(await list('node=n1'), ['d'])
  t.same(await list('after=e'), [])
  t.same((await get(on, '/nodes?limit=2')).json, {
    nodes: [{ node: 'n1', curve: buckets.curves.get('n1')?.getPublicKey(), broker: false, modules: 1, where: { 'never-taken-in': 1 } }, { node: 'n2', curve: buckets.curves.get('n2')?.getPublicKey(), broker: false, modules: 0, where: {} }],
    total: 3,
    next: 'n2'
  })
  t.match((await get(on, '/nodes?after=n2')).json, { nodes: [{ node: 'n3', curve: null, modules: 1 }], total: 3, next: undefined })
  t.match((await get(on, '/nodes/n3?where=never-taken-in&limit=1')).json, { node: 'n3', curve: null, modules: [{ module: 'd', composition: null }], total: 1 })
  t.match((await get(on, '/nodes/n3?where=current')).json, { modules: [], total: 0 })

  for (const path of ['/modules', '/modules/a', '/modules/a/take-ins', '/nodes', '/nodes/n1']) {
    const first = await get(on, path, { token: tokens.operator })
    t.match(first, { status: 200, headers: { etag: /^"[\w-]{22}"$/, 'cache-control': 'private, no-cache', vary: 'Authorization, Origin', 'content-type': /^application\/json/ } }, path)
    t.match(await get(on, path, { headers: { 'If-None-Match': `"x", W/${first.headers.etag}` } }), { status: 304, body: '', headers: { etag: first.headers.etag } }, path)
    t.equal((await get(on, path, { headers: { 'If-None-Match': '"x"' } })).status, 200)
    t.match(await get(on, path, { token: tokens.module }), { status: 403, json: { type: 'urn:mesh-gateway:problem:forbidden' } }, path)
    t.equal((await http(on.gateway.port, 'GET', path)).status, 401)
    t.match(await http(on.gateway.port, 'HEAD', path, { token: tokens.reader }), { status: 200, body: '', headers: { etag: first.headers.etag } }, path)
  }
  const { headers: { etag } } = await get(on, '/modules')
  await buckets.trunk('a', 'b')
  await eventually('another ETag', async () => (await get(on, '/modules', { headers: { 'If-None-Match': etag as string } })).status === 200)

  const bad: Array<[string, RegExp]> = [
    ['/modules?limit=0', /limit must be a whole number from 1 to 1000/], ['/modules?limit=1001', /limit/], ['/modules?limit=x', /limit/], ['/modules?limit=1&limit=2', /more than once/],
    ['/modules?after=A', /after must be a name/], ['/modules?node=', /node must be a name/], ['/modules?where=', /where must be one or several of failing, /],
    ['/modules?where=current,gone', /where/], ['/modules/A', /none of a module/], ['/modules/a/take-ins?limit=65', /1 to 64/], ['/modules/a/take-ins?before=-1', /before/], ['/nodes/A', /none of a node/]
  ]
  for (const [path, detail] of bad) t.match(await get(on, path), { status: 400, json: { type: 'urn:mesh-gateway:problem:invalid', detail } }, path)
  t.match(await get(on, '/nodes/none'), { status: 404, json: { type: 'urn:mesh-gateway:problem:not-found' } })
  t.match(await get(on, '/modules/none/take-ins'), { status: 404, json: { type: 'urn:mesh-gateway:problem:not-held' } })
})

t.test('the records of take-ins: the newest first, who and why, each step, in pages', async (t) => {
  const on = await stage(t)
  const { buckets } = on
  await buckets.ready('m1', 'a', ['n1'])
  await post(on, 'm1', { body: { reason: 'the first' } })
  await buckets.done('m1', 'b')
  await buckets.trunk('m1', 'b')
  await post(on, 'm1', { who: 'operator/bob' })
  await buckets.put('settings', 'm1', { port: 'x' })
  await post(on, 'm1')
  const { json } = await get(on, '/modules/m1/take-ins')
  t.match(json, {
    module: 'm1',
    takeIns: [
      { outcome: 'step-failed', by: ['operator alice'], from: fp('b'), to: fp('b'), steps: [{}, {}, {}, {}, { step: 'compose', error: /port/ }] },
      { outcome: 'taken-in', by: ['operator bob'], from: fp('a'), to: fp('b') },
      { outcome: 'taken-in', by: ['operator alice: the first'], from: undefined, to: fp('a'), at: /^\d{4}-/ }
    ],
    next: undefined
  })
  const first = (await get(on, '/modules/m1/take-ins?limit=2')).json
  t.same(first.takeIns, json.takeIns.slice(0, 2))
  t.same((await get(on, `/modules/m1/take-ins?limit=2&before=${first.next}`)).json, { module: 'm1', takeIns: json.takeIns.slice(2) })
  for (let n = 0; n < 70; n++) await buckets.put('takeins', 'm1', { ...json.takeIns[2], outcome: `n${n}` })
  const kept = (await get(on, '/modules/m1/take-ins')).json.takeIns
  t.equal(kept.length, 64)
  t.equal(kept[0].outcome, 'n69')
})

t.test('while the bus is away it is 503, and it goes on from what the bus has by then', async (t) => {
  const on = await stage(t)
  const { buckets, server } = on
  await buckets.ready('m1', 'a', ['n1'])
  await post(on, 'm1')
  await stands(on, 'm1', 'current')
  await server.kill('SIGTERM')
  await eventually('unavailable', async () => {
    const answer = await get(on, '/modules')
    return answer.status === 503 && answer.headers['retry-after'] === '1'
  })
  await server.start()
  await on.gateway.ready()
  await stands(on, 'm1', 'current')
  await buckets.assign('m1', ['n1', 'n2'])
  await stands(on, 'm1', 'behind')
})

t.test('the copy of the buckets is made when somebody asks, let go when nobody does, and never larger than it may be', async (t) => {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const buckets = await mesh(nc)
  await buckets.hold('m1')
  const log = { info () {}, warn () {}, error () {}, debug () {} } as unknown as ConstructorParameters<typeof Mirror>[1]
  const consumers = async () => (await buckets.jsm.consumers.list('KV_mesh_inventory').next()).length
  const mirror = new Mirror('mesh_', log, { idleMs: 200, characters: 1000 })
  t.teardown(() => mirror.stop())
  await t.rejects(mirror.picture(), { message: /not connected to the bus/ })
  mirror.up(nc)
  t.equal(await consumers(), 0)
  t.same((await mirror.picture()).named('module'), ['m1'])
  t.equal(await consumers(), 1)
  await eventually('it is let go', async () => await consumers() === 0)
  t.same((await mirror.picture()).named('module'), ['m1'], 'and made again')
  await buckets.put('settings', 'm1', { large: 'x'.repeat(1000) })
  await eventually('it is too large', () => mirror.picture().then(() => false, ({ message }: Error) => /more than 1000 characters/.test(message)))
  await buckets.put('settings', 'm1', {})
  await eventually('it is tried again', () => mirror.picture().then(() => true, () => false))
})

t.test('200 modules on 20 nodes are told at once', async (t) => {
  const nodes = Array.from({ length: 20 }, (_, n) => `n${n}`)
  const modules = Array.from({ length: 200 }, (_, n) => `m${n}`)
  const on = await stage(t, { nodes })
  const { buckets } = on
  await buckets.ready('pattern', 'a', ['n0'], { module: 'pattern', permissions: { publish: ['a.>'] } })
  await post(on, 'pattern')
  const pattern = await buckets.composition('n0', 'pattern')
  const epoch = await buckets.epoch('compositions')
  const curve = (node: string): string => buckets.curves.get(node)?.getPublicKey() ?? ''
  const trunk = await buckets.meshRevision('trunk', 'pattern')
  const write = async (module: string): Promise<void> => {
    await buckets.trunk(module, 'a')
    await buckets.registered(module, 'a', { module, permissions: { publish: ['a.>'] } }, trunk)
    await buckets.assign(module, nodes)
    const carried = await Promise.all(nodes.map(async (node) => {
      const revision = await buckets.put('compositions', `${node}.${module}`, { ...pattern, node, module, credential: { ...pattern?.credential, to: curve(node) } })
      return [node, `${epoch}.${revision}`]
    }))
    await buckets.put('grants', `${module}.${fp('a')}`, { module, fp: fp('a'), commit: commitOf('a'), nodes: Object.fromEntries(carried) })
  }
  // Some at once: all together would take longer than a call may.
  for (let from = 0; from < modules.length; from += 10) await Promise.all(modules.slice(from, from + 10).map(write))
  await buckets.holder('bus', 'n0')
  t.match((await post(on, 'bus')).json, { outcome: 'composed' })
  const first = await get(on, '/modules?limit=1000', { wait: 10_000 })
  const all = await eventually('all are told', async () => { const answer = await get(on, '/modules?limit=1000&where=current'); return answer.json.total === 202 && answer })
  await buckets.put('settings', 'm7', {})
  const moved = await get(on, '/modules?limit=1000')
  t.match(await get(on, '/nodes/n3?limit=1'), { status: 200, json: { total: 200 } })
  t.equal(moved.json.modules.length, 202)
  t.comment(`the first ${first.ms} ms, the same again ${all.ms} ms, after one key moved ${moved.ms} ms; ${moved.data.length} bytes`)
})
