/** Take-ins on a real bus, by POST: what is written in which order, how each ends, what it says (cases A1, A3, A4). */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { nkeyAuthenticator } from 'nats'
import { createUser, fromSeed } from 'nkeys.js'
import t from 'tap'
import { limits } from '../src/core/limits.js'
import type { Composition } from '../src/schemas/composition.js'
import type { Manifest } from '../src/schemas/manifest.js'
import { broker } from './support/bus/broker.js'
import { commitOf, fp, mesh, sampleManifest } from './support/bus/buckets.js'
import { client, encode } from './support/bus/client.js'
import { NatsServer } from './support/bus/nats-server.js'
import { proxy, type Proxy } from './support/bus/proxy.js'
import { bucketSpy } from './support/bus/spy.js'
import { startGateway } from './support/gateway.js'
import { freePort, temporaryFolder } from './support/machine.js'
import { allSteps, keys, post, since, stage, stepsIn, without } from './support/take-in.js'
import { eventually } from './support/until.js'

const short = (digit: string) => fp(digit).slice(0, 12)
const grantKey = (module: string, digit = 'a') => `grants ${module}.${fp(digit)}`
t.test('A1: many POSTs at once are two runs at most: each thing is written once, and another module is not held up', async (t) => {
  let between: Proxy | undefined
  const on = await stage(t, {
    natsUrl: async (server) => {
      between = await proxy(t, server.port)
      return between.url
    }
  })
  const { buckets, spy } = on
  await buckets.holder('bus', 'n3')
  await buckets.ready('m1', 'a', ['n1', 'n2'])
  await buckets.ready('m2', 'a', ['n1'])
  if (between) between.lag = 2
  const ended: string[] = []
  const timed = async (module: string) => {
    const answer = await post(on, module)
    ended.push(module)
    return answer
  }
  const answers = await Promise.all([...Array.from({ length: 20 }, () => timed('m1')), timed('m2')])
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]))
  t.same(new Set(answers.slice(0, 20).map(({ json }) => json.outcome)), new Set(['taken-in', 'current']))
  t.equal(answers[20]?.json.outcome, 'taken-in')
  t.not(ended.at(-1), 'm2', 'm2 did not wait for the second run of m1')
  for (const key of ['module.m1', 'module.m2']) t.equal(spy.of('inventory', key).filter(({ value }) => value.fp === fp('a')).length, 1, key)
  for (const key of ['n1.m1', 'n2.m1', 'n1.m2']) t.equal(spy.of('compositions', key).length, 1, key)
  for (const module of ['m1', 'm2']) t.equal(spy.of('grants', `${module}.${fp('a')}`).length, 1, module)

  await buckets.done('m1', 'b')
  const five = Array.from({ length: 5 }, () => post(on, 'm1'))
  await buckets.trunk('m1', 'b')
  for (const { status } of await Promise.all(five)) t.equal(status, 200)
  t.match(await buckets.get('inventory', 'module.m1'), { fp: fp('b'), commit: commitOf('b') })
  for (const node of ['n1', 'n2']) t.match(await buckets.composition(node, 'm1'), { fp: fp('b') })
  t.ok(await buckets.get('grants', `m1.${fp('b')}`))
  t.notOk(await buckets.get('grants', `m1.${fp('a')}`), 'the grant of the fingerprint before is gone')
  const before = spy.writes.length
  const once = await post(on, 'm1')
  t.match(once.json, { outcome: 'current', fp: fp('b'), composed: [], grant: false })
  t.same(since(on, before), [])
})

t.test('A3: registration, the module\'s nodes, the broker module, the grant: in that order, wherever the holder is', async (t) => {
  const on = await stage(t)
  const { buckets, spy } = on
  const rights: Partial<Manifest> = { permissions: { publish: ['orders.>', 'audit.x'], subscribe: ['orders.*'] } }

  await t.test('no broker has a seat: the step is left out; a node that stands twice is one', async (t) => {
    await buckets.ready('m1', 'a', ['n2', 'n1', 'n1'], sampleManifest('m1', rights))
    const from = spy.writes.length
    const { status, headers, json } = await post(on, 'm1')
    t.equal(status, 200)
    t.equal(headers['cache-control'], 'no-store')
    t.same({ ...json, steps: stepsIn(json) }, {
      outcome: 'taken-in',
      module: 'm1',
      fp: fp('a'),
      commit: commitOf('a'),
      registered: true,
      composed: ['n1', 'n2'],
      grant: true,
      said: `m1 at ${short('a')}: registered from the build of ${short('a')} (aaaaaaaa); composed n1, n2; granted`,
      steps: without('busHolder')
    })
    for (const { ms } of json.steps) t.ok(ms >= 0)
    const [first, ...rest] = since(on, from)
    t.equal(first, 'inventory module.m1')
    t.same(rest.slice(0, 2).sort(), ['compositions n1.m1', 'compositions n2.m1'])
    t.same(rest.slice(2), [grantKey('m1')])
    t.match(await buckets.get('inventory', 'module.m1'), {
      module: 'm1', fp: fp('a'), commit: commitOf('a'), trunk: await buckets.meshRevision('trunk', 'm1'), manifest: sampleManifest('m1', rights)
    })
  })

  await t.test('the holder is another node, which is composed last; each node\'s user is in its list with the manifest\'s rights', async (t) => {
    await buckets.holder('bus', 'n3')
    t.match((await post(on, 'bus')).json, { outcome: 'composed', composed: ['n3'], grant: true })
    await buckets.ready('m2', 'a', ['n1', 'n2'], sampleManifest('m2', rights))
    const from = spy.writes.length
    const { json } = await post(on, 'm2')
    t.match(json, { outcome: 'taken-in', composed: ['n1', 'n2', 'n3'], grant: true })
    t.same(stepsIn(json), allSteps)
    const lines = since(on, from)
    t.same([lines[0], ...lines.slice(1, 3).sort(), ...lines.slice(3)],
      ['inventory module.m2', 'compositions n1.m2', 'compositions n2.m2', 'compositions n3.bus', grantKey('m2')])
    const users = await buckets.users('n3', 'bus')
    t.same(users?.map(({ module, node }) => `${node}.${module}`), ['n3.bus', 'n1.m1', 'n2.m1', 'n1.m2', 'n2.m2'])
    for (const node of ['n1', 'n2']) {
      const composition = await buckets.composition(node, 'm2') as Composition
      t.match(composition, { node, module: 'm2', fp: fp('a'), commit: commitOf('a'), config: { port: 8080 }, bound: {}, secrets: [], users: undefined })
      const seed = buckets.unseal(composition)
      t.match(seed, /^SU[A-Z2-7]{56}$/)
      t.equal(fromSeed(encode(seed)).getPublicKey(), composition.credential.user, 'the sealed seed is that user\'s')
      t.match(users?.find((user) => user.module === 'm2' && user.node === node),
        { user: composition.credential.user, publish: ['audit.x', 'orders.>'], subscribe: ['orders.*'] })
    }
    t.not((await buckets.composition('n1', 'm2'))?.credential.user, (await buckets.composition('n2', 'm2'))?.credential.user, 'a user of its own on each node')
    t.same(await buckets.get('grants', `m2.${fp('a')}`), {
      module: 'm2',
      fp: fp('a'),
      commit: commitOf('a'),
      nodes: { n1: await buckets.meshRevision('compositions', 'n1.m2'), n2: await buckets.meshRevision('compositions', 'n2.m2') }
    })
  })

  await t.test('a new build: the credentials are kept, and no grant of another fingerprint is left', async (t) => {
    const before = await buckets.composition('n1', 'm2')
    await buckets.done('m2', 'b', sampleManifest('m2', { config: { port: { default: 1 } } }))
    await buckets.trunk('m2', 'b')
    const from = spy.writes.length
    t.match((await post(on, 'm2')).json, { outcome: 'taken-in', fp: fp('b'), composed: ['n1', 'n2', 'n3'] })
    t.same(since(on, from).slice(-3), ['compositions n3.bus', grantKey('m2', 'b'), `${grantKey('m2')} PURGE`])
    const after = await buckets.composition('n1', 'm2')
    t.match(after, { fp: fp('b'), config: { port: 1 } })
    t.same(after?.credential, before?.credential)
    t.match((await buckets.users('n3', 'bus'))?.find(({ module }) => module === 'm2'), { publish: [], subscribe: [] })
  })

  await t.test('what many builds leave behind among the grants is swept', async (t) => {
    await buckets.hold('m9')
    await buckets.assign('m9', ['n1'])
    const keys = async () => Object.keys((await buckets.jsm.streams.info('KV_mesh_grants', { subjects_filter: '$KV.mesh_grants.m9.*' })).state.subjects ?? {})
    let most = 0
    for (let build = 0; build < 40; build++) {
      const [at, commit] = [`fp2-${String(build).padStart(64, '0')}`, commitOf('a')]
      await buckets.put('builds', `done.m9.${at}`, { fp: at, commit, manifest: sampleManifest('m9') })
      await buckets.put('trunk', 'm9', { fp: at, commit })
      t.match((await post(on, 'm9')).json, { outcome: 'taken-in', grant: true })
      most = Math.max(most, (await keys()).length)
    }
    t.ok(most <= 2 * limits.grantMarkers + 2, `${most} at most`)
    t.ok((await keys()).length > limits.grantMarkers, 'the latest markers stay')
    t.match((await post(on, 'm9')).json, { outcome: 'current' })
  })

  await t.test('the holder is among the nodes: its composition is still the last', async (t) => {
    await buckets.ready('m3', 'a', ['n3', 'n1'])
    const from = spy.writes.length
    t.match((await post(on, 'm3')).json, { outcome: 'taken-in', composed: ['n1', 'n3'] })
    const lines = since(on, from)
    t.same(lines.slice(1, 3).sort(), ['compositions n1.m3', 'compositions n3.m3'])
    t.same(lines.slice(3), ['compositions n3.bus', grantKey('m3')], 'the holder once')
  })

  await t.test('no nodes: unassigned, and no grant', async (t) => {
    await buckets.ready('m4', 'a', [])
    const from = spy.writes.length
    const { status, json } = await post(on, 'm4')
    t.equal(status, 200)
    t.match(json, { outcome: 'unassigned', module: 'm4', fp: fp('a'), commit: commitOf('a'), registered: true, composed: [], grant: false })
    t.same(stepsIn(json), without('busHolder'))
    t.same(since(on, from), ['inventory module.m4'])
  })

  await t.test('a module bound to an offer is composed with the one that offers it, and only where the offer moved', async (t) => {
    await buckets.ready('db', 'a', ['n1'], { module: 'db', offers: { url: 'one', other: 1 } })
    await buckets.ready('user', 'a', ['n2'], { module: 'user', bound: { url: {} } })
    await buckets.put('inventory', 'binding.user', { url: { module: 'db', offer: 'url' } })
    t.match((await post(on, 'db')).json, { outcome: 'taken-in', composed: ['n1', 'n3'] })
    t.match((await post(on, 'user')).json, { outcome: 'taken-in', composed: ['n2', 'n3'] })
    t.match(await buckets.composition('n2', 'user'), { bound: { url: 'one' } })
    await buckets.done('db', 'b', { module: 'db', offers: { url: 'one', other: 2 } })
    await buckets.trunk('db', 'b')
    t.match((await post(on, 'db')).json, { outcome: 'taken-in', composed: ['n1'] })
    await buckets.done('db', 'c', { module: 'db', offers: { url: 'two' } })
    await buckets.trunk('db', 'c')
    t.match((await post(on, 'db')).json, { outcome: 'taken-in', composed: ['n1', 'n2'] })
    t.match(await buckets.composition('n2', 'user'), { bound: { url: 'two' }, fp: fp('a') })
    // An offer that is no longer there: the one that offers it is taken in all the same, the other keeps what it has.
    await buckets.done('db', 'd', { module: 'db', offers: {} })
    await buckets.trunk('db', 'd')
    t.match((await post(on, 'db')).json, { outcome: 'taken-in', composed: ['n1'] })
    t.match(await buckets.composition('n2', 'user'), { bound: { url: 'two' } })
    const failed = await post(on, 'user')
    t.equal(failed.status, 500)
    t.match(failed.json, { step: 'compose', detail: /bound "url" of user is bound to "url" of db, but db offers no such thing/ })
  })
})

t.test('A3: the grant waits until every server of the seat runs with the users', async (t) => {
  const on = await stage(t)
  const { buckets, nc, spy } = on
  await buckets.holder('bus', 'n3', ['s1', 's2'])
  const one = await broker(t, nc, { server: 's1', delay: 300 })
  const two = await broker(t, nc, { server: 's2' })
  t.match((await post(on, 'bus')).json, { outcome: 'composed' })
  await buckets.ready('m1')
  await buckets.node('node-a')
  one.asked.length = two.asked.length = 0

  const late = await post(on, 'm1')
  t.match(late.json, { outcome: 'taken-in', grant: true })
  const asked = await buckets.meshRevision('compositions', 'n3.bus')
  t.same([one, two].map(({ asked }) => asked.map(({ revision }) => revision)), [[asked], [asked]], 'for the revision that was written')
  const [grant] = spy.of('grants', `m1.${fp('a')}`)
  t.ok(grant && one.asked[0] && grant.at >= one.asked[0].at + 290, 'the grant came after the slower one')
  one.delay = 0

  one.asked.length = 0
  t.match((await post(on, 'm1')).json, { outcome: 'current' })
  await buckets.put('settings', 'm1', { port: 1 })
  t.match((await post(on, 'm1')).json, { outcome: 'composed', composed: ['node-a'] })
  t.same(one.asked, [], 'nobody is asked where the users are the same')

  await buckets.ready('m2')
  two.says = 'the list is refused: line 7'
  const refused = await post(on, 'm2')
  t.equal(refused.status, 500)
  t.match(refused.headers['content-type'], /^application\/problem\+json/)
  t.match(refused.json, {
    type: 'urn:mesh-gateway:problem:step-failed', status: 500, step: 'busHolder', done: without('busHolder', 'grants'), detail: /server s2 .*the list is refused: line 7/
  })
  t.notOk(await buckets.get('grants', `m2.${fp('a')}`))
  t.match(await buckets.get('takeins', 'm2'), { outcome: 'step-failed', steps: [...Array<object>(6).fill({}), { step: 'busHolder', error: /line 7/ }] })

  two.says = 'silent'
  two.asked.length = 0
  const silent = await post(on, 'm2')
  t.match(silent.json, { status: 500, step: 'busHolder', detail: /server s2 .* did not answer within 5 s/ })
  t.ok(silent.ms >= 4900 && silent.ms < 8000, `${silent.ms} ms`)
  t.ok(two.asked.length > 0, 'a repeat after a failure asks again')
  t.notOk(await buckets.get('grants', `m2.${fp('a')}`))

  two.says = 'applied'
  t.match((await post(on, 'm2')).json, { outcome: 'composed', composed: [], grant: true }, 'the repeat finishes')

  // A new credential alone changes the users, though no grant is behind: what was not applied is asked again.
  two.says = 'silent'
  await buckets.node('node-a')
  for (const what of ['the first', 'the repeat']) t.match((await post(on, 'm2')).json, { status: 500, step: 'busHolder' }, what)
  two.says = 'applied'
  t.match((await post(on, 'm2')).json, { outcome: 'current' })

  // What is taken away has to be applied, too, and a repeat knows that it was not.
  one.says = 'no'
  await buckets.assign('m2', [])
  t.match((await post(on, 'm2')).json, { status: 500, step: 'busHolder' })
  t.ok(await buckets.get('grants', `m2.${fp('a')}`), 'the grant stays until the servers know')
  one.asked.length = 0
  t.match((await post(on, 'm2')).json, { status: 500, step: 'busHolder' })
  t.ok(one.asked.length > 0)
  one.says = 'applied'
  t.match((await post(on, 'm2')).json, { outcome: 'unassigned', composed: [] })
  t.notOk(await buckets.get('grants', `m2.${fp('a')}`))
})

t.test('A3: a bus that forbids one node\'s compositions is a failed step; the other node is composed, and a repeat finishes', async (t) => {
  const folder = temporaryFolder(t)
  const [operator, user] = [createUser(), createUser()]
  writeFileSync(join(folder, 'gateway.nk'), Buffer.from(user.getSeed()))
  const server = new NatsServer(t, await freePort(), folder)
  const users = (rights: string) => server.configure(
    `authorization { users: [ { nkey: ${operator.getPublicKey()} }, { nkey: ${user.getPublicKey()}, permissions: { ${rights} } } ] }`)
  users('publish: { deny: "$KV.mesh_compositions.n2.>" }')
  await server.start()
  const nc = await client(t, server.url, { authenticator: nkeyAuthenticator(operator.getSeed()) })
  const buckets = await mesh(nc)
  for (const node of ['n1', 'n2', 'n3']) await buckets.node(node)
  await buckets.holder('bus', 'n3')
  await buckets.ready('m1', 'a', ['n1', 'n2'])
  const spy = await bucketSpy(t, nc)
  const gateway = await startGateway(t, { natsUrl: server.url, ready: true, keys, env: { NATS_NKEY_SEED_FILE: join(folder, 'gateway.nk') } })
  const on = { server, nc, buckets, spy, gateway }

  const { status, json } = await post(on, 'm1')
  t.equal(status, 500)
  t.match(json, { type: 'urn:mesh-gateway:problem:step-failed', step: 'compose', done: ['held', 'trunk', 'registeredAt', 'takeIn', 'nodesOf'], registered: true, composed: ['n1'] })
  t.match(json.detail, /^the step compose failed: writing compositions n2\.m1: /)
  // What the spy hears comes on a connection of its own, perhaps after the answer.
  await eventually('both writes are heard', () => since(on, 0).length > 1)
  t.same(since(on, 0), ['inventory module.m1', 'compositions n1.m1'], 'no holder step, no grant')
  users('publish: { allow: ">" }')
  await server.reload()
  const repeat = await post(on, 'm1')
  t.match(repeat.json, { outcome: 'composed', registered: false, composed: ['n2', 'n3'], grant: true })
  t.same(since(on, 2), ['compositions n2.m1', 'compositions n3.bus', grantKey('m1')])
})

t.test('A4: each way to end has its own name', async (t) => {
  let between: Proxy | undefined
  const on = await stage(t, {
    natsUrl: async (server) => {
      between = await proxy(t, server.port)
      return between.url
    }
  })
  const { buckets, spy, nc } = on
  await buckets.hold('m1')
  await buckets.assign('m1', ['n1'])
  /** One POST: the answer's status and main fields, and what was written. */
  const ends = async (module = 'm1') => {
    const from = spy.writes.length
    const { status, json } = await post(on, module)
    const { outcome, step, registered, composed, grant, fp: at } = json
    return { status, outcome, step, registered, composed, grant, fp: at, detail: json.detail, wrote: since(on, from), records: spy.writes.slice(from).filter(({ bucket }) => bucket === 'takeins').length }
  }
  const nothing = { registered: false, composed: [], grant: false, wrote: [] }

  t.match(await ends(), { status: 200, outcome: 'no-trunk', fp: null, ...nothing, records: 1 })
  t.match(await ends(), { outcome: 'no-trunk', records: 0 }, 'the record is of the last run worth one')
  await buckets.put('trunk', 'm1', { fp: 'fp1-0123', commit: commitOf('a') })
  t.match(await ends(), { status: 200, outcome: 'old-fingerprint', fp: null, ...nothing, records: 1 })
  await buckets.trunk('m1', 'a')
  t.match(await ends(), { status: 202, outcome: 'waiting', fp: fp('a'), ...nothing, records: 1 })
  await buckets.done('m1', 'a')
  t.match(await ends(), { status: 200, outcome: 'taken-in', fp: fp('a'), registered: true, composed: ['n1'], grant: true, records: 1 })
  t.match(await ends(), { status: 200, outcome: 'current', ...nothing, records: 1 })
  t.match(await ends(), { status: 200, outcome: 'current', ...nothing, records: 0 }, 'a second current writes nothing at all')
  await buckets.trunk('m1', 'a', { commit: commitOf('a').slice(0, 7) })
  t.match(await ends(), { outcome: 'current', ...nothing, records: 0 }, 'a commit that is abbreviated is the same')
  await buckets.delete('grants', `m1.${fp('a')}`)
  t.match(await ends(), { status: 200, outcome: 'composed', registered: false, composed: [], grant: true, wrote: [grantKey('m1')], records: 1 })

  // Another registration stands while the trunk says otherwise: what the trunk says is right, whatever revision is noted.
  const [epoch = '', revision = ''] = (await buckets.meshRevision('trunk', 'm1')).split('.')
  for (const trunk of [`${epoch}.${Number(revision) + 5}`, `${Number(epoch) + 1}.1`, `${epoch}.1`]) {
    await buckets.registered('m1', 'b', sampleManifest('m1'), trunk)
    t.match(await ends(), { status: 200, outcome: 'taken-in', fp: fp('a'), registered: true }, trunk)
    t.match(await buckets.get('inventory', 'module.m1'), { fp: fp('a'), trunk: `${epoch}.${revision}` })
  }
  for (const more of [{ commit: commitOf('b') }, { fp: fp('b') }]) {
    const held = await buckets.get('inventory', 'module.m1')
    await buckets.put('inventory', 'module.m1', { ...held, ...more })
    t.match(await ends(), { status: 200, outcome: 'taken-in', fp: fp('a'), registered: true }, JSON.stringify(more))
  }
  t.notOk(await buckets.get('grants', `m1.${fp('b')}`))

  await t.test('overtaken while it registers: superseded, and what is registered is composed and granted', async (t) => {
    await buckets.ready('m2', 'a', ['n1'])
    await buckets.done('m2', 'b', sampleManifest('m2', { config: { port: { default: 2 } } }))
    let reads = 0
    // What comes after the read, the registration, is held back.
    nc.subscribe('$JS.API.STREAM.MSG.GET.KV_mesh_builds', {
      callback: () => { if (++reads === 1 && between) between.holdUp = true }
    })
    await nc.flush()
    const answer = post(on, 'm2')
    await eventually('the done key is being read', () => reads > 0)
    await buckets.trunk('m2', 'b')
    await buckets.registered('m2', 'b', sampleManifest('m2', { config: { port: { default: 2 } } }))
    between?.release()
    const { status, json } = await answer
    t.equal(status, 200)
    t.match(json, { fp: fp('b'), commit: commitOf('b'), registered: false, composed: ['n1'], grant: true })
    t.ok(['superseded', 'composed'].includes(json.outcome), json.outcome)
    t.match(await buckets.composition('n1', 'm2'), { fp: fp('b'), config: { port: 2 } })
    t.ok(await buckets.get('grants', `m2.${fp('b')}`))
    t.notOk(await buckets.get('grants', `m2.${fp('a')}`))
    t.same(spy.of('inventory', 'module.m2').map(({ value }) => value.fp), [undefined, fp('b')], 'the older build was never registered')
  })

  await t.test('what does not fit is a failed step that says so, and no grant', async (t) => {
    const manifest = sampleManifest('bad')
    const key = `done.bad.${fp('a')}`
    const done = (more: object) => buckets.put('builds', key, { fp: fp('a'), commit: commitOf('a'), manifest, ...more })
    await buckets.ready('bad', 'a', ['n1'])
    const table: Array<[string, () => Promise<unknown>, string, RegExp]> = [
      ['trunk no JSON', () => buckets.put('trunk', 'bad', 'no JSON'), 'trunk', /^the step trunk failed: trunk bad is no JSON$/],
      ['not 64 digits', () => buckets.put('trunk', 'bad', { fp: 'fp2-abc', commit: commitOf('a') }), 'trunk', /trunk bad .*fp2- and 64 hex digits/],
      ['upper case', () => buckets.put('trunk', 'bad', { fp: fp('A'), commit: commitOf('a') }), 'trunk', /64 hex digits/],
      ['another module', async () => { await buckets.trunk('bad', 'a'); return done({ manifest: sampleManifest('m1') }) }, 'takeIn', /the manifest of bad names another module, "m1"/],
      ['another fingerprint', () => done({ fp: fp('b') }), 'takeIn', /names another fingerprint inside/],
      ['no manifest', () => done({ manifest: undefined }), 'takeIn', /builds done\.bad\.fp2-a{64} does not fit at \/manifest/],
      ['no JSON', () => buckets.put('builds', key, '{"fp":'), 'takeIn', /is no JSON/],
      ['empty', () => buckets.put('builds', key, ''), 'takeIn', /is empty/],
      ['a list', () => buckets.put('builds', key, '[]'), 'takeIn', /does not fit/],
      ['a number no double holds', () => buckets.put('builds', key, JSON.stringify({ fp: fp('a'), commit: commitOf('a'), manifest: { module: 'bad', offers: { n: 'N' } } }).replace('"N"', '12345678901234567890')), 'takeIn', /12345678901234567890, which no double holds/],
      ['a default its schema refuses', () => done({ manifest: { module: 'bad', config: { port: { default: 'x', schema: { type: 'integer' } } } } }), 'takeIn', /the default of config "port"/],
      ['a node that is not there', async () => { await done({}); return buckets.assign('bad', ['n1', 'n9']) }, 'compose', /no inventory node\.n9/],
      ['an offer that is not there', async () => {
        await buckets.assign('bad', ['n1'])
        await buckets.put('inventory', 'binding.bad', { db: { module: 'm1', offer: 'nope' } })
        await buckets.put('trunk', 'bad', { fp: fp('b'), commit: commitOf('b') })
        return buckets.done('bad', 'b', { module: 'bad', bound: { db: {} } })
      }, 'compose', /m1 offers no such thing/]
    ]
    for (const [what, write, step, detail] of table) {
      await write()
      const { status, json } = await post(on, 'bad')
      t.match({ status, step: json.step, detail: json.detail, type: json.type }, { status: 500, step, detail, type: 'urn:mesh-gateway:problem:step-failed' }, what)
      t.same(json.done, allSteps.slice(0, allSteps.indexOf(step)).filter((name) => name !== 'takeIn' || json.registered || step !== 'compose'), what)
    }
    t.same(spy.of('grants').filter(({ key }) => key.startsWith('bad.')), [])
  })

  await t.test('a subject that is the server\'s, the mesh\'s, an inbox or none is refused by name before it is registered', async (t) => {
    const table: Array<[string, string]> = [
      ['$KV.>', '$KV.>'], ['mesh.x', 'mesh.x'], ['_INBOX.>', '_INBOX.>'], ['>', '>'], ['*.provision', '*.provision'], ['a..b', 'a..b'], ['', ''], ['a b', 'a b'], ['a.>.b', 'a.>.b']
    ]
    for (const [i, [subject, named]] of table.entries()) {
      const module = `subject-${i}`
      for (const permissions of [{ publish: [subject] }, { subscribe: ['fine', subject] }]) {
        await buckets.ready(module, 'a', ['n1'], sampleManifest(module, { permissions }))
        const { status, json } = await post(on, module)
        t.match({ status, step: json.step }, { status: 500, step: 'takeIn' }, subject)
        t.ok(json.detail.includes(`the subject "${named}" `), json.detail)
        t.same(await buckets.get('inventory', `module.${module}`), { module }, 'nothing was registered')
      }
    }
  })

  await t.test('who may, and what is there', async (t) => {
    const from = spy.writes.length
    const table: Array<[string, string | null, number, string]> = [
      ['m1', 'module/m1', 403, 'forbidden'], ['m1', 'reader/grafana', 403, 'forbidden'], ['m1', null, 401, 'unauthenticated'],
      ['nobody', 'operator/alice', 404, 'not-held'], ['M1', 'operator/alice', 400, 'invalid'], ['-', 'operator/alice', 400, 'invalid'],
      ['a.b', 'operator/alice', 400, 'invalid'], ['%3E', 'operator/alice', 400, 'invalid'], ['m'.repeat(64), 'operator/alice', 400, 'invalid']
    ]
    for (const [module, who, status, problem] of table) {
      const answer = await post(on, module, { who })
      t.match(answer, { status, json: { type: `urn:mesh-gateway:problem:${problem}`, status } }, `${module} ${who}`)
      t.equal(answer.headers['cache-control'], 'no-store')
    }
    t.match((await post(on, 'nobody')).json.detail, /^nobody is not in the catalogue/)
    const misfits: Array<[object, string]> = [
      [{ reason: 5 }, 'reason in the body must be a text of at most 500 characters'],
      [{ reason: 'x'.repeat(501) }, 'reason in the body must be a text of at most 500 characters'],
      [{ reason: null }, 'reason in the body must be a text of at most 500 characters'],
      [['secret'], 'the body must be an object']
    ]
    for (const [body, detail] of misfits) t.match((await post(on, 'm1', { body })).json, { status: 400, detail }, JSON.stringify(body).slice(0, 30))
    t.match((await post(on, 'M1')).json.detail, /^name in the path must be a text that matches \^/)
    t.equal(spy.writes.length, from, 'nothing was written, not even a record')
  })
})
