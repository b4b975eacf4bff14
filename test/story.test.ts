/**
 * The whole story, with every part as the process that runs in production: a build is written, and a watcher sees what it
 * changes, the grant stands, and the module may do on the bus what its manifest says.
 */
import t from 'tap'
import type { Manifest } from '../src/schemas/manifest.js'
import { fp, type Mesh } from './support/bus/buckets.js'
import { decode } from './support/bus/client.js'
import { moduleOnBus } from './support/bus/module.js'
import { end } from './support/machine.js'
import { eventually, until } from './support/until.js'
import { wholeMesh } from './support/whole-mesh.js'
import { svid } from './support/wire/signing.js'
import { ws } from './support/wire/websocket.js'

const db = (url: string): Manifest => ({ module: 'db', offers: { url } })
const app = (permissions: Manifest['permissions']): Manifest => ({ module: 'app', config: { port: { default: 8080 } }, bound: { url: {} }, permissions })

/** What the catalogue's people write: the builder and the indexer, by plain keys. */
async function build (buckets: Mesh, module: string, digit: string, manifest: Manifest): Promise<void> {
  await buckets.done(module, digit, manifest)
  await buckets.trunk(module, digit)
}

const isGranted = (buckets: Mesh, module: string, digit: string) => eventually(`${module} is granted at ${digit}`, async () => {
  try { return await buckets.get('grants', `${module}.${fp(digit)}`) } catch { return undefined }
}, 20_000)

t.test('a build that is written reaches the watcher, the grant and the bus, through whatever is killed meanwhile', async (t) => {
  const { natsUrl, nc, buckets, gateway, running, restartBus, startProvisioner } = await wholeMesh(t)
  await buckets.node('node-a')
  for (const module of ['broker', 'db', 'app']) {
    await buckets.hold(module)
    await buckets.assign(module, ['node-a'])
  }
  await buckets.seat('broker', 'node-a', ['s1'])
  await buckets.put('inventory', 'binding.app', { url: { module: 'db', offer: 'url' } })
  await build(buckets, 'broker', 'a', { module: 'broker' })
  await build(buckets, 'db', 'a', db('db://one'))
  await isGranted(buckets, 'broker', 'a')
  await isGranted(buckets, 'db', 'a')

  // The agent stands still: the module is composed, but nothing is promised yet.
  running.agent.kill('SIGSTOP')
  await build(buckets, 'app', 'a', app({ publish: ['orders.created'], subscribe: ['orders.*'] }))
  const composed = await eventually('app is composed', () => buckets.composition('node-a', 'app'))
  const seed = buckets.unseal(composed)
  await eventually('its user is in the list', async () => (await buckets.users('node-a', 'broker'))?.some(({ module }) => module === 'app'))
  await t.rejects(moduleOnBus(t, natsUrl, seed), { code: 'AUTHORIZATION_VIOLATION' }, 'before the grant the credential opens nothing')
  t.equal(await buckets.get('grants', `app.${fp('a')}`), undefined)
  running.agent.kill('SIGCONT')
  const grant = await isGranted(buckets, 'app', 'a')
  t.same(grant.nodes, { 'node-a': await buckets.meshRevision('compositions', 'node-a.app') })

  const own = 'mesh.provision.node-a.app'
  const first = await moduleOnBus(t, natsUrl, seed)
  const publish = ['orders.created', `${own}.get`, `${own}.list`, 'orders.paid', 'mesh.provision.node-a.db.get', '$KV.mesh_trunk.app', `${own}.changed`]
  const subscribe = ['orders.x', `${own}.changed`, `_INBOX.${composed.credential.user}.x`, 'orders.x.y', '>', '_INBOX.>', 'mesh.provision.node-a.db.changed']
  t.same(await first.refused(publish, subscribe), [
    ...publish.slice(3).map((subject) => `publish ${subject}`), ...subscribe.slice(3).map((subject) => `subscription ${subject}`)
  ], 'with the grant it may do exactly what its manifest and section 5 say')
  const asked = await first.nc.request(`${own}.get`, JSON.stringify({ kind: 'bound', key: 'url' }))
  t.equal(decode(asked.data), '"db://one"', 'and asks its provisioner')

  const watcher = await ws(t, gateway.port, { token: svid(gateway.keys.ed, 'module/app') })
  t.match((await watcher.watch('bound', 'url')).result, { kind: 'bound', key: 'url', value: 'db://one' })
  t.match((await watcher.watch('config', 'port')).result, { value: 8080 })

  // A new build of what it is bound to, and one of its own with other rights.
  await build(buckets, 'db', 'b', db('db://two'))
  await build(buckets, 'app', 'b', app({ publish: ['orders.paid'] }))
  t.match((await watcher.note('provision.changed', 10_000))?.params, { kind: 'bound', key: 'url', value: 'db://two' })
  await isGranted(buckets, 'db', 'b')
  await isGranted(buckets, 'app', 'b')
  await eventually('only the present fingerprint is granted', async () => await buckets.get('grants', `app.${fp('a')}`) === undefined)
  const again = await moduleOnBus(t, natsUrl, seed)
  t.same(await again.refused(['orders.paid', 'orders.created', `${own}.get`], ['orders.x', `${own}.changed`]), ['publish orders.created', 'subscription orders.x'],
    'the same credential, with the new rights')

  // The server is killed in the middle: its key written, the trunk value not yet.
  await buckets.done('db', 'c', db('db://three'))
  await restartBus()
  await eventually('the trunk value is taken', () => buckets.trunk('db', 'c').catch(() => undefined), 10_000)
  await isGranted(buckets, 'db', 'c')
  const three = await until(() => watcher.changes('url').find(({ value }) => value === 'db://three'), 15_000)
  t.ok(three, 'the watcher sees it')
  t.same((await watcher.get('bound', 'url')).result?.value, 'db://three')
  await eventually('all watches are live', () => watcher.notes('session.tick').at(-1)?.params.live, 10_000)
  const third = await eventually('the credential still works', () => moduleOnBus(t, natsUrl, seed).catch(() => undefined), 10_000)
  t.same(await third.refused(['orders.paid', 'orders.created'], []), ['publish orders.created'])

  // The provisioner dies without a word: nobody is left believing.
  const seen = watcher.texts().length
  const killed = Date.now()
  await end(running.provisioner)
  const stale = await watcher.until((one) => one.method === 'mesh/provision.stale' && one.at >= killed, 10_000)
  t.ok(stale, 'the watches are told within 10 s')
  await eventually('both are', () => new Set(watcher.texts().slice(seen).filter(({ method }) => method === 'mesh/provision.stale').map(({ params }) => params.key)).size === 2)
  t.same(watcher.notes('session.tick').at(-1)?.params, { live: false })
  await build(buckets, 'db', 'd', db('db://four'))
  await isGranted(buckets, 'db', 'd')
  t.same(watcher.changes('url').at(-1)?.value, 'db://three', 'what nobody answers for is not handed')
  startProvisioner()
  t.ok(await until(() => watcher.changes('url').at(-1)?.value === 'db://four', 15_000), 'and are current when another answers')
  await eventually('all watches are live again', () => watcher.notes('session.tick').at(-1)?.params.live, 10_000)
  t.ok(watcher.notes('provision.live').some(({ params, at }) => params.key === 'port' && at > killed), 'the one that did not move is told so')
  t.same(watcher.changes('url').map(({ value }) => value), ['db://two', 'db://three', 'db://four'], 'each value once, in order')
  t.same(watcher.changes('port'), [])

  // Taken off its node, it is taken off the bus.
  const closed = third.nc.closed()
  await buckets.assign('app', [])
  t.ok(await until(async () => await buckets.composition('node-a', 'app') === undefined, 10_000))
  await closed
  await t.rejects(moduleOnBus(t, natsUrl, seed), { code: 'AUTHORIZATION_VIOLATION' })
  t.match((await watcher.get('bound', 'url')).error, { code: -32001 }, 'and its values are refused')
  await nc.close()
})
