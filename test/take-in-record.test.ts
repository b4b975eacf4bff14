/** What a take-in keeps a record of, removes, and refuses to read; and several gateways that take in at once (case V5). */
import { createCurve } from 'nkeys.js'
import { headers } from 'nats'
import t from 'tap'
import { commitOf, fp } from './support/bus/buckets.js'
import { stored } from './support/bus/stored.js'
import { startGateway } from './support/gateway.js'
import { keys, post, since, stage, stepsIn, without, written } from './support/take-in.js'
import { eventually } from './support/until.js'

const grantKey = (module: string, digit = 'a') => `grants ${module}.${fp(digit)}`

t.test('the record says who and why, what it ended as, each step, and from where to where', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  await buckets.ready('m1', 'a', ['n1'])
  const began = Date.now()
  await post(on, 'm1', { body: { reason: 'the first build', other: 1 } })
  const first = await buckets.get('takeins', 'm1')
  t.same(Object.keys(first).sort(), ['at', 'by', 'outcome', 'steps', 'to'])
  t.match(first, { outcome: 'taken-in', by: ['operator alice: the first build'], to: fp('a') })
  t.same(stepsIn(first), without('busHolder'))
  const at = Date.parse(first.at)
  t.match(first.at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  t.ok(at >= began && at <= Date.now())

  await buckets.done('m1', 'b')
  await buckets.trunk('m1', 'b')
  await post(on, 'm1')
  t.match(await buckets.get('takeins', 'm1'), { outcome: 'taken-in', by: ['operator alice'], from: fp('a'), to: fp('b') })

  await buckets.put('trunk', 'm1', 'no JSON')
  await post(on, 'm1', { body: { reason: 'once' } })
  t.match(await buckets.get('takeins', 'm1'), { outcome: 'step-failed', from: fp('b'), steps: [{ step: 'held' }, { step: 'trunk', error: 'trunk m1 is no JSON' }] })
  await post(on, 'm1', { body: { reason: 'twice' } })
  t.match(await buckets.get('takeins', 'm1'), { by: ['operator alice: twice'] }, 'a failure is always worth a record')

  await buckets.trunk('m1', 'b')
  await post(on, 'm1')
  await post(on, 'm1')
  // Only a grant of another fingerprint is in the way: that is written, so it is recorded, though the outcome is the same.
  await buckets.put('grants', `m1.${fp('c')}`, { module: 'm1', fp: fp('c'), commit: commitOf('c'), nodes: {} })
  t.match((await post(on, 'm1')).json, { outcome: 'composed' })
  await buckets.put('grants', `m1.${fp('c')}`, { module: 'm1', fp: fp('c'), commit: commitOf('c'), nodes: {} })
  t.match((await post(on, 'm1', { body: { reason: 'again' } })).json, { outcome: 'composed', said: /deleted 1 grant$/ })
  t.match(await buckets.get('takeins', 'm1'), { outcome: 'composed', by: ['operator alice: again'] })
  t.same(spy.of('takeins').map(({ value }) => value.outcome), ['taken-in', 'taken-in', 'step-failed', 'step-failed', 'current', 'composed', 'composed'])
})

t.test('a module leaves a node only because an operator said so, and then all of it goes', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  await buckets.holder('bus', 'n3')
  const places = async (module: string) => (await buckets.users('n3', 'bus'))?.filter((user) => user.module === module).map(({ node }) => node)
  for (const module of ['m1', 'm2', 'm3']) {
    await buckets.ready(module, 'a', ['n1', 'n2'])
    t.match((await post(on, module)).json, { outcome: 'taken-in' })
  }
  await buckets.put('settings', 'm1', { port: 1 })
  await post(on, 'm1')
  const sealed = await stored(buckets, 'compositions', 'n2.m1')
  t.equal(sealed.length, 2)

  // Taken off one of its nodes.
  await buckets.assign('m1', ['n1'])
  const from = spy.writes.length
  t.match((await post(on, 'm1')).json, { outcome: 'composed', composed: ['n2', 'n3'], grant: true })
  t.same(since(on, from), ['compositions n2.m1 PURGE', 'compositions n3.bus', grantKey('m1')])
  t.same(await stored(buckets, 'compositions', 'n2.m1'), [''], 'no sealed credential lingers in the history')
  t.same(await places('m1'), ['n1'])
  t.same(Object.keys((await buckets.get('grants', `m1.${fp('a')}`)).nodes), ['n1'])
  await buckets.assign('m1', ['n1', 'n2'])
  t.match((await post(on, 'm1')).json, { outcome: 'composed', composed: ['n2', 'n3'] })
  const user = (await buckets.composition('n2', 'm1'))?.credential.user
  t.notOk(sealed.some((text) => text.includes(user ?? '')), 'back on the node it has a new user')

  // A gateway that was killed after the marker and before it had removed what was under it: the next run does.
  await buckets.ready('m5', 'a', ['n1'])
  t.match((await post(on, 'm5')).json, { outcome: 'taken-in' })
  await buckets.assign('m5', [])
  const marker = headers()
  marker.set('KV-Operation', 'PURGE')
  await on.nc.jetstream().publish('$KV.mesh_compositions.n1.m5', '', { headers: marker })
  t.equal((await stored(buckets, 'compositions', 'n1.m5')).length, 2, 'the sealed credential lingers')
  t.match((await post(on, 'm5')).json, { outcome: 'unassigned' })
  t.same(await stored(buckets, 'compositions', 'n1.m5'), [''])

  // An assignment that is gone without a marker is an accident: nothing is removed.
  await buckets.jsm.streams.purge('KV_mesh_inventory', { filter: '$KV.mesh_inventory.assignment.m1' })
  const before = spy.writes.length
  t.match((await post(on, 'm1')).json, { outcome: 'unassigned', composed: [], grant: false, said: /has no assignment, and still stands on n1, n2$/ })
  t.same(since(on, before), [])
  t.same(await places('m1'), ['n1', 'n2'])
  t.ok(await buckets.get('grants', `m1.${fp('a')}`))

  // One that is empty, one that was deleted, and a module that was.
  await buckets.assign('m1', [])
  await buckets.delete('inventory', 'assignment.m2')
  await buckets.delete('inventory', 'module.m3')
  for (const module of ['m1', 'm2']) {
    t.match((await post(on, module)).json, { outcome: 'unassigned', composed: ['n1', 'n2', 'n3'], grant: false, said: /is assigned to no node: composed n1, n2, n3; deleted 1 grant$/ })
  }
  const removed = await post(on, 'm3')
  t.match(removed, { status: 404, json: { type: 'urn:mesh-gateway:problem:not-held' } })
  t.match(await buckets.get('takeins', 'm3'), { outcome: 'removed', by: ['operator alice'] })
  for (const module of ['m1', 'm2', 'm3']) {
    for (const node of ['n1', 'n2']) t.same(await stored(buckets, 'compositions', `${node}.${module}`), [''], `${node}.${module}`)
    t.same(await places(module), [])
    t.notOk(await buckets.get('grants', `${module}.${fp('a')}`))
  }
  t.ok(await buckets.get('inventory', 'module.m1'), 'it is still held and registered')
  const last = spy.writes.length
  for (const module of ['m1', 'm2']) t.match((await post(on, module)).json, { outcome: 'unassigned', composed: [] })
  t.equal((await post(on, 'm3')).status, 404)
  t.same(written(spy.writes.slice(last)), [], 'once more writes nothing at all')
})

t.test('a document that does not fit stops what it is about, in one sentence, and nothing else', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  await buckets.holder('bus', 'n3')
  await buckets.ready('good', 'a', ['n1'])
  await buckets.ready('m1', 'a', ['n1'], { module: 'm1', config: { port: { default: 1 } }, bound: { url: {} } })
  await buckets.ready('db', 'a', ['n2'], { module: 'db', offers: { url: 'one' } })
  await buckets.put('inventory', 'binding.m1', { url: { module: 'db', offer: 'url' } })
  for (const module of ['db', 'm1', 'good']) t.match((await post(on, module)).json, { outcome: 'taken-in' })
  const kept = await buckets.composition('n1', 'm1')
  const users = await buckets.users('n3', 'bus')

  const long = '1234567890123456789012345'
  const deep = `{"url":${'['.repeat(100)}${']'.repeat(100)}}`
  const table: Array<['inventory' | 'settings' | 'trunk', string, string, string, RegExp]> = [
    ['trunk', 'm1', '[]', 'trunk', /^the step trunk failed: trunk m1 does not fit/],
    ['inventory', 'module.m1', 'no JSON', 'held', /inventory module\.m1 is no JSON/],
    ['inventory', 'module.m1', '{"module":"m1","fp":"fp2-1"}', 'held', /inventory module\.m1 does not fit at \/fp|\/commit|\/trunk|\/manifest/],
    ['inventory', 'module.m1', '{"module":"m2"}', 'held', /names another module, m2/],
    ['inventory', 'assignment.m1', '{"nodes":"n1"}', 'nodesOf', /inventory assignment\.m1 does not fit at \/nodes/],
    ['inventory', 'assignment.m1', '{"nodes":["N 1"]}', 'nodesOf', /does not fit at \/nodes\/0/],
    ['inventory', 'binding.m1', '{"url":{"module":"db"}}', 'compose', /inventory binding\.m1 does not fit at \/url\/offer/],
    ['inventory', 'binding.m1', deep, 'compose', /nests deeper than 64 levels/],
    ['inventory', 'binding.m1', '{}', 'compose', /bound "url" of m1 is bound to nothing/],
    ['settings', 'm1', '7', 'compose', /settings m1 does not fit/],
    ['settings', 'm1', `{"port":${long}}`, 'compose', new RegExp(`settings m1 holds the number ${long}, which no double holds: write it as a string`)],
    ['inventory', 'node.n1', '{"node":"n1","curve":"X"}', 'compose', /inventory node\.n1 does not fit at \/curve/],
    ['inventory', 'node.n1', JSON.stringify({ node: 'n2', curve: createCurve().getPublicKey() }), 'compose', /node\.n1 names another node, n2/],
    ['inventory', 'module.db', '{"module":"db","fp":7}', 'compose', /inventory module\.db does not fit/]
  ]
  for (const [bucket, key, text, step, detail] of table) {
    const right = await buckets.get(bucket, key)
    await buckets.put(bucket, key, text)
    const from = spy.writes.length
    const { status, json } = await post(on, 'm1')
    t.match({ status, step: json.step, detail: json.detail }, { status: 500, step, detail }, `${bucket} ${key} ${text.slice(0, 40)}`)
    t.same(since(on, from), [], 'nothing is half written')
    if (key !== 'node.n1') t.match(await post(on, 'good'), { status: 200, json: { outcome: 'current' } }, 'another module goes on')
    if (right === undefined) await buckets.delete(bucket, key)
    else await buckets.put(bucket, key, right)
    t.match((await post(on, 'm1')).json, { outcome: 'current' }, 'and it goes on when the document fits')
  }

  // What take-ins write themselves is written anew where it does not fit.
  await buckets.put('compositions', 'n1.m1', 'no JSON')
  t.match((await post(on, 'm1')).json, { outcome: 'composed', composed: ['n1', 'n3'] })
  t.match(await buckets.composition('n1', 'm1'), { config: kept?.config, bound: kept?.bound })
  await buckets.put('grants', `m1.${fp('a')}`, '{}')
  t.match((await post(on, 'm1')).json, { outcome: 'composed', grant: true })
  await buckets.put('takeins', 'm1', 'no JSON')
  t.match((await post(on, 'm1')).json, { outcome: 'current' })
  t.match(await buckets.get('takeins', 'm1'), { outcome: 'current' })
  await buckets.put('compositions', 'n3.bus', '[]')
  t.match((await post(on, 'good')).json, { outcome: 'composed', composed: ['n3'] })
  t.same((await buckets.users('n3', 'bus'))?.map(({ module }) => module), users?.map(({ module }) => module))

  // The seat concerns everybody, so everybody is told.
  await buckets.put('inventory', 'seat.broker', '{"module":"bus"}')
  t.match((await post(on, 'good')).json, { status: 500, step: 'compose', detail: /inventory seat\.broker does not fit at \/node/ })
  await buckets.seat('nobody', 'n3', [])
  t.match((await post(on, 'good')).json, { status: 500, step: 'busHolder', detail: /the broker module nobody, .*is not registered: take it in first/ })
  await buckets.seat('bus', 'n1', [])
  t.match((await post(on, 'good')).json, { status: 500, step: 'busHolder', detail: /assignment\.bus does not name that node/ })
})

t.test('V5: an empty done key is a failed step, the real one wakes one take-in, a trunk value that was deleted is none', async (t) => {
  const on = await stage(t, { env: { TAKE_IN: 'auto' } })
  const { buckets, spy, gateway } = on
  t.same(spy.writes, [], 'a start on empty buckets writes nothing')
  await buckets.hold('m1')
  await buckets.assign('m1', ['n1'])
  await buckets.trunk('m1', 'a')
  const outcomes = () => spy.of('takeins', 'm1').map(({ value }) => value.outcome)
  await eventually('m1 waits', () => outcomes().at(-1) === 'waiting')
  await buckets.put('builds', `done.m1.${fp('a')}`, '')
  await eventually('the empty key fails', () => outcomes().at(-1) === 'step-failed')
  t.match((await buckets.get('takeins', 'm1')).steps.at(-1), { step: 'takeIn', error: `builds done.m1.${fp('a')} is empty: expected a JSON object` })
  t.same(await buckets.get('inventory', 'module.m1'), { module: 'm1' }, 'nothing was registered')
  t.notOk(gateway.ended)
  // The log of a process is read a moment after what it tells of.
  const logged = (outcome: string) => gateway.logged(/take-in: /).filter((line) => line.outcome === outcome).length
  await eventually('the failure is in the log', () => gateway.logged(/take-in failed/).length > 0)
  await buckets.done('m1', 'a')
  await eventually('the real one is taken in', () => outcomes().at(-1) === 'taken-in')
  await buckets.delete('trunk', 'm1')
  await eventually('a deleted trunk value is none', () => outcomes().at(-1) === 'no-trunk')
  await eventually('the last is in the log', () => logged('no-trunk') > 0)
  t.equal(logged('taken-in'), 1)
  t.same(outcomes().slice(-2), ['taken-in', 'no-trunk'], 'one record each')
  t.ok(await buckets.composition('n1', 'm1'), 'and what stands stays')
})

t.test('three gateways on one bus register each of ten modules once and write nothing needless', async (t) => {
  const on = await stage(t, { env: { TAKE_IN: 'auto' } })
  const { buckets, spy, server } = on
  await buckets.holder('bus', 'n3')
  const others = await Promise.all([1, 2].map(() => startGateway(t, { natsUrl: server.url, ready: true, keys, env: { TAKE_IN: 'auto' } })))
  const modules = Array.from({ length: 10 }, (_, i) => `m${i}`)
  await Promise.all(modules.map(async (module) => {
    await buckets.hold(module)
    await buckets.assign(module, ['n1', 'n2'])
    await buckets.trunk(module, 'a')
    await buckets.done(module, 'a')
  }))
  const answers = await Promise.all(others.flatMap((gateway) => modules.map((module) => post({ gateway }, module))))
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]))
  for (const module of modules) await eventually(`the grant of ${module}`, () => buckets.get('grants', `${module}.${fp('a')}`), 20_000)
  t.equal((await buckets.users('n3', 'bus'))?.length, 21)
  const registrations = spy.of('inventory').filter(({ key, value }) => key.startsWith('module.m') && value.fp !== undefined)
  t.same(registrations.map(({ key }) => key).sort(), modules.map((module) => `module.${module}`).sort(), 'each was registered once')
  for (const module of modules) {
    for (const node of ['n1', 'n2']) t.equal(spy.of('compositions', `${node}.${module}`).length, 1, `${node}.${module}`)
    t.equal(spy.of('grants', `${module}.${fp('a')}`).length, 1)
    const grant = await buckets.get('grants', `${module}.${fp('a')}`)
    for (const node of ['n1', 'n2']) t.equal(grant.nodes[node], await buckets.meshRevision('compositions', `${node}.${module}`))
  }
  const lists = spy.of('compositions', 'n3.bus').map(({ value }) => JSON.stringify(value))
  t.equal(new Set(lists).size, lists.length, 'no list of users was written twice')
  for (const gateway of [on.gateway, ...others]) t.same(gateway.logged(/take-in failed/), [])
})
