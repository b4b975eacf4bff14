import t from 'tap'
import { headers, type NatsConnection } from 'nats'
import { ProvisionerState } from '../src/agents/provisioner-state.js'
import { startProvisioner } from '../src/agents/provisioner.js'
import type { Word } from '../src/core/ports.js'
import { client, decode } from './support/bus/client.js'
import { commitOf, fp, mesh } from './support/bus/buckets.js'
import { natsServer } from './support/bus/nats-server.js'
import { atEnd, type Owner } from './support/owner.js'
import { eventually } from './support/until.js'

const key = (letter: string, length: number) => letter + 'A'.repeat(length - 1)
const composition = (module: string, more: object = {}, node = 'node-a') => ({
  node,
  module,
  fp: fp('a'),
  commit: commitOf('a'),
  config: {},
  bound: {},
  secrets: [],
  credential: { user: key('U', 56), sealed: 'AA', by: key('X', 56), to: key('X', 56) },
  ...more
})
const quiet = { debug () {}, info () {}, warn () {}, error () {} }

/** A state that has read these compositions, in this order, at revisions 1, 2, … */
function stateOf (...documents: Array<ReturnType<typeof composition>>) {
  const state = new ProvisionerState('node-a')
  let revision = 0
  const write = (module: string, document: unknown) =>
    state.entry({ key: `node-a.${module}`, revision: ++revision, deleted: document === undefined, text: document === undefined ? '' : JSON.stringify(document) })
  state.anew(7)
  for (const document of documents) write(document.module, document)
  const words = state.ready()
  return { state, write, words }
}
const said = (words: Word[]) => words.map(({ module, kind, key }) => [module, kind, ...(key === undefined ? [] : [key])].join(' ')).sort()
const ask = (kind: unknown, key?: unknown) => JSON.stringify({ kind, key })

t.test('what is answered: values in one form, and each refusal by its code', async (t) => {
  const { state, write } = stateOf(composition('billing', {
    config: { port: 8080, nothing: null, no: false, empty: '', object: { b: 1, a: [1.0, 'é'] }, 'a b/ü': 1, ['__proto__']: 'own' }, bound: { db: 'postgres://db' }
  }))
  t.same(state.get('billing', ask('config', 'port')), { text: '8080' })
  t.same(state.get('billing', ask('config', 'nothing')), { text: 'null' })
  t.same(state.get('billing', ask('config', 'no')), { text: 'false' })
  t.same(state.get('billing', ask('config', 'empty')), { text: '""' })
  t.same(state.get('billing', ask('config', 'object')), { text: '{"a":[1,"é"],"b":1}' }, 'members sorted, no white space')
  t.same(state.get('billing', ask('config', 'a b/ü')), { text: '1' })
  t.same(state.get('billing', ask('bound', 'db')), { text: '"postgres://db"' })
  t.match(state.get('billing', ask('config', 'db')), { code: 404, reason: /declares no config "db"/ })
  t.match(state.get('billing', ask('config', 'constructor')), { code: 404 })
  t.match(state.get('billing', ask('secret', 'password')), { code: 403, reason: /never answered/ })
  t.match(state.get('other', ask('config', 'port')), { code: 403, reason: /^module other has no composition on node node-a/ })
  for (const payload of ['', '{', '[]', 'null', ask('colour', 'x'), ask('config'), ask('config', 7), ask('config', ''), ask('config', 'a\nb'),
    ask('config', 'k'.repeat(257)), ask('config', 'k'.repeat(100_000))]) {
    t.match(state.get('billing', payload), { code: 400, reason: /malformed|longer/ }, payload.slice(0, 40))
  }
  t.same(state.get('billing', ask('config', '__proto__')), { text: '"own"' })
  t.same(JSON.parse((state.list('billing') as { text: string }).text), {
    config: ['__proto__', 'a b/ü', 'empty', 'no', 'nothing', 'object', 'port'], bound: ['db']
  })
  t.match(state.list('other'), { code: 403 })

  write('broken', { node: 'node-a' })
  t.match(state.get('broken', ask('config', 'port')), { code: 500, reason: /compositions node-a.broken does not fit/ })
  write('broken', composition('another'))
  t.match(state.list('broken'), { code: 500, reason: /another node or module/ })
  t.same(state.get('billing', ask('config', 'port')), { text: '8080' }, 'one broken composition breaks no other')
})

t.test('which words are said: exactly what moved by bytes', async (t) => {
  const { state, write, words } = stateOf(composition('billing', { config: { a: 1, b: { x: 1, y: 2 }, c: 3 }, bound: { db: 'one' } }))
  t.same(said(words), ['billing bound', 'billing config'], 'everything at the start')
  t.same(said(write('billing', composition('billing', { config: { a: 1, b: { y: 2, x: 1 }, c: 3 }, bound: { db: 'one' }, fp: fp('b'), commit: 'bbbbbbb' }))),
    [], 'nothing where only the fingerprint moved')
  t.same(state.revisionOf('billing'), { epoch: 7, revision: 2 }, 'but the revision did')
  t.same(said(write('billing', composition('billing', { config: { a: 2, b: { y: 2, x: 1 }, d: null }, bound: { db: 'two' } }))),
    ['billing bound db', 'billing config a', 'billing config c', 'billing config d'], 'moved, vanished, appeared')
  t.same(write('billing', composition('billing', { config: { a: 3, b: { y: 2, x: 1 }, d: null }, bound: { db: 'two' } })),
    [{ module: 'billing', kind: 'config', key: 'a', revision: { epoch: 7, revision: 4 } }], "with that state's revision")
  t.same(said(write('billing', 'no composition')), ['billing bound', 'billing config'], 'broken: all of it')
  t.same(said(write('billing', 'no composition')), [], 'broken in the same way: nothing')
  t.same(said(write('billing', composition('billing', { config: { a: 3 } }))), ['billing bound', 'billing config'], 'mended: all of it')
  t.same(said(write('billing', undefined)), ['billing bound', 'billing config'], 'gone: all of it')
  t.same(state.revisionOf('billing'), { epoch: 7, revision: 8 })
  t.same(said(write('billing', undefined)), [], 'gone twice: nothing')
  t.same(said(write('mailer', composition('mailer'))), ['mailer bound', 'mailer config'], 'there: all of it')
  t.same(said(state.all()), ['billing bound', 'billing config', 'mailer bound', 'mailer config'], 'what is gone is said again, too')
  t.same(state.revisionOf('billing'), { epoch: 7, revision: 10 }, 'a module without a composition is as of the last write that was applied')
})

t.test('a bucket made anew: the answers stay until all is read, and what vanished with it is said', async (t) => {
  const { state } = stateOf(composition('billing', { config: { a: 1 } }), composition('mailer'))
  state.anew(8)
  t.same(state.entry({ key: 'node-a.billing', revision: 1, deleted: false, text: JSON.stringify(composition('billing', { config: { a: 2 } })) }), [])
  t.same(state.get('billing', ask('config', 'a')), { text: '1' })
  t.same(state.revisionOf('billing'), { epoch: 7, revision: 1 })
  t.same(said(state.ready()), ['billing bound', 'billing config', 'mailer bound', 'mailer config'])
  t.same(state.get('billing', ask('config', 'a')), { text: '2' })
  t.same(state.revisionOf('mailer'), { epoch: 8, revision: 1 })
  t.match(state.get('mailer', ask('config', 'a')), { code: 403 })
})

const request = async (nc: NatsConnection, module: string, what: 'get' | 'list', payload = '') => {
  const { data, headers } = await nc.request(`mesh.provision.node-a.${module}.${what}`, payload, { timeout: 2000 })
  return { text: decode(data), code: headers?.get('Nats-Service-Error-Code'), reason: headers?.get('Nats-Service-Error'), revision: headers?.get('Mesh-Revision') }
}

/** Every word said of a node from now on. */
function listen (t: Owner, nc: NatsConnection) {
  const words: string[] = []
  const sub = nc.subscribe('mesh.provision.node-a.*.changed', {
    callback: (_, message) => {
      const { kind, key } = JSON.parse(decode(message.data)) as { kind: string, key?: string }
      words.push([message.subject.split('.')[3], kind, ...(key === undefined ? [] : [key]), message.headers?.get('Mesh-Revision')].join(' '))
    }
  })
  atEnd(t, () => { sub.unsubscribe() })
  return words
}

t.test('on the bus: a service that answers with revisions and says what moved after it moved', async (t) => {
  const server = await natsServer(t, { config: 'max_payload: 4096' })
  // One connection for all: another one could come back later than the provisioner's and miss what it says at once.
  const nc = await client(t, server.url)
  const kv = await mesh(nc)
  const epoch = await kv.epoch('compositions')
  const words = listen(t, nc)
  const first = await kv.put('compositions', 'node-a.billing', composition('billing', { config: { port: 1, long: 'x'.repeat(3000) }, bound: {} }))
  await kv.put('compositions', 'node-b.billing', composition('billing', { config: { port: 2 } }, 'node-b'))
  await kv.put('compositions', 'node-a.gone', composition('gone'))
  await kv.kv.compositions.purge('node-a.gone')

  const provisioner = startProvisioner(nc, { node: 'node-a', prefix: 'mesh_', log: quiet })
  atEnd(t, () => provisioner.stop())
  await provisioner.ready
  await eventually('all is said at the start', () => words.length === 4)
  t.same(words.sort(), [`billing bound ${epoch}.${first}`, `billing config ${epoch}.${first}`, `gone bound ${epoch}.4`, `gone config ${epoch}.4`])
  t.same(await request(nc, 'billing', 'get', ask('config', 'port')), { text: '1', code: '', reason: '', revision: `${epoch}.${first}` })
  t.match(await request(nc, 'billing', 'list'), { text: '{"config":["long","port"],"bound":[]}', revision: `${epoch}.${first}` })
  t.match(await request(nc, 'gone', 'get', ask('config', 'port')), { text: '', code: '403', reason: /^module gone has no composition on node node-a/, revision: `${epoch}.4` })
  t.match(await request(nc, 'billing', 'get', ask('config', 'nope')), { text: '', code: '404', revision: `${epoch}.${first}` })
  t.match(await request(nc, 'billing', 'get', 'rubbish'), { text: '', code: '400', revision: `${epoch}.${first}` })
  t.match(await request(nc, 'billing', 'get', ask('config', 'long')), { text: '', code: '500', reason: /larger than the bus takes/ })

  // An answer goes to inboxes alone: to any other subject it would be published in the asker's stead.
  const before = await kv.get('settings', 'other')
  nc.publish('mesh.provision.node-a.billing.get', ask('config', 'port'), { reply: '$KV.mesh_settings.other' })
  nc.publish('mesh.provision.node-a.billing.list', '', { reply: 'mesh.provision.node-a.other.changed' })
  t.match(await request(nc, 'billing', 'get', ask('config', 'port')), { text: '1' }, 'what comes after is answered')
  t.same(await kv.get('settings', 'other'), before)
  t.notOk(words.some((word) => word.startsWith('other')))

  words.length = 0
  const second = await kv.put('compositions', 'node-a.billing', composition('billing', { config: { port: 9 }, bound: {} }))
  await eventually('what moved is said', () => words.length === 2)
  t.same(words.sort(), [`billing config long ${epoch}.${second}`, `billing config port ${epoch}.${second}`])
  t.match(await request(nc, 'billing', 'get', ask('config', 'port')), { text: '9', revision: `${epoch}.${second}` })

  const services = []
  for await (const info of await nc.services.client().info('mesh-provisioner')) services.push(info)
  t.match(services, [{ metadata: { node: 'node-a' }, endpoints: [{ subject: 'mesh.provision.node-a.*.get' }, { subject: 'mesh.provision.node-a.*.list' }] }])

  // A word is lost while the bus is away, so everything is said again when it is back.
  words.length = 0
  await server.kill()
  await server.start()
  await eventually('all is said again after the bus was away', () => words.includes(`billing config ${epoch}.${second}`), 10_000)
  const newest = await kv.put('compositions', 'node-a.billing', composition('billing', { config: { port: 10 } }))
  await eventually('and what moves is heard as before', () => words.includes(`billing config port ${epoch}.${newest}`), 10_000)

  // The bucket is deleted and made again: another epoch, and what is no longer there is said to have moved.
  await kv.jsm.streams.delete('KV_mesh_compositions')
  const again = await mesh(nc)
  const third = await again.put('compositions', 'node-a.mailer', composition('mailer', { config: { a: 1 } }))
  const later = await again.epoch('compositions')
  await eventually('the new bucket is answered from', async () => (await request(nc, 'mailer', 'get', ask('config', 'a'))).text === '1', 15_000)
  t.match(await request(nc, 'billing', 'get', ask('config', 'port')), { code: '403', revision: `${later}.${third}` })
  t.ok(words.includes(`billing config ${later}.${third}`))

  await provisioner.stop()
  await t.rejects(nc.request('mesh.provision.node-a.mailer.get', ask('config', 'a'), { timeout: 1000, headers: headers() }), { code: '503' },
    'one that stopped takes no more asks')
  // The server that was started last is the first to be ended; the client library throws where it is closed in that moment.
  await nc.close()
})

t.test('two serve one node: each ask is answered once, and one that stops loses none', async (t) => {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const kv = await mesh(nc)
  await kv.put('compositions', 'node-a.billing', composition('billing', { config: { port: 1 } }))
  const started = await Promise.all([1, 2].map(async () => startProvisioner(await client(t, server.url), { node: 'node-a', prefix: 'mesh_', log: quiet })))
  await Promise.all(started.map(({ ready }) => ready))
  let replies = 0
  nc.subscribe('_INBOX.replies', { callback: () => { replies++ } })
  for (let i = 0; i < 20; i++) nc.publish('mesh.provision.node-a.billing.get', ask('config', 'port'), { reply: '_INBOX.replies' })
  const stopping = started[0]?.stop()
  await eventually('each is answered', () => replies === 20)
  await stopping
  t.match(await request(nc, 'billing', 'get', ask('config', 'port')), { text: '1' })
  t.equal(replies, 20)
  await started[1]?.stop()
})
