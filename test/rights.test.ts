/**
 * What each role may do on the bus is all that it needs and no more, as nats-server itself sees it. The server knows the users of
 * `rightsOf` alone: the ones that dev runs with, `mesh-gateway rights` prints and docs/security.md shows.
 */
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Empty, headers, type NatsConnection } from 'nats'
import { fromPublic } from 'nkeys.js'
import t from 'tap'
import { startBroker } from '../src/agents/broker.js'
import { startProvisioner } from '../src/agents/provisioner.js'
import { standingService } from '../src/agents/service.js'
import { confUser } from '../src/agents/user-list.js'
import { main } from '../src/commands/main.js'
import { bucketNames } from '../src/core/ports.js'
import { provisionerSeedFile, seedFile, type BusRole } from '../src/dev/seeds.js'
import { Asker } from '../src/nats/asker.js'
import { NatsStore } from '../src/nats/buckets.js'
import { rightsOf, roles, type Role } from '../src/nats/rights.js'
import { packageRoot } from '../src/package-info.js'
import { commitOf, fp, mesh, sampleManifest } from './support/bus/buckets.js'
import { encode } from './support/bus/client.js'
import { moduleOnBus } from './support/bus/module.js'
import { natsServer } from './support/bus/nats-server.js'
import { provisioner } from './support/bus/provisioner.js'
import { asUser, Users } from './support/bus/users.js'
import { startGateway } from './support/gateway.js'
import { projectRoot, temporaryFolder } from './support/machine.js'
import { atEnd } from './support/owner.js'
import { eventually } from './support/until.js'
import { wholeMesh } from './support/whole-mesh.js'
import { http } from './support/wire/http.js'
import { svid } from './support/wire/signing.js'
import { ws } from './support/wire/websocket.js'

const run = promisify(execFile)
const quiet = { debug () {}, info () {}, warn () {}, error () {} }

t.test('each role does all of its work with its rights, and the server refuses nobody anything', async (t) => {
  const { dataDir, natsUrl, nc, gateway, refusals } = await wholeMesh(t)
  const as = (role: BusRole) => asUser(t, natsUrl, readFileSync(seedFile(dataDir, role), 'utf8').trim())
  const [builder, indexer] = [new NatsStore(await as('builder'), 'mesh_'), new NatsStore(await as('indexer'), 'mesh_')]
  /** As a builder and an indexer write, by compare-and-set. */
  const build = async (module: string, digit: string, manifest: object): Promise<void> => {
    const key = `done.${module}.${fp(digit)}`
    await builder.write('builds', key, JSON.stringify({ fp: fp(digit), commit: commitOf(digit), manifest }), (await builder.read('builds', key))?.revision ?? 0)
    await indexer.write('trunk', module, JSON.stringify({ fp: fp(digit), commit: commitOf(digit) }), (await indexer.read('trunk', module))?.revision ?? 0)
  }
  for (const module of ['broker', 'app']) await build(module, 'a', sampleManifest(module))

  // Operators write a description without builds; the command looks at the buckets with their user.
  const file = join(dataDir, 'mesh.yaml')
  const apply = (text: string) => {
    writeFileSync(file, text)
    const env = { PATH: process.env.PATH, DATA_DIR: dataDir, NATS_URL: natsUrl, NATS_NKEY_SEED_FILE: seedFile(dataDir, 'inventory') }
    return run(process.execPath, ['dist/src/cli.js', 'apply', file], { cwd: projectRoot, env })
  }
  const described = (port: number, more = '') => `nodes: { node-a: {} }
seat: { module: broker, node: node-a, servers: [s1] }
modules:
  broker: { nodes: [node-a] }
  app: { nodes: [node-a], settings: { port: ${port} }${more} }
`
  t.match(await apply(described(1)), { stdout: /wrote settings: app/ })

  // The keys woke the take-ins; the agent applied the users; a POST is answered.
  const { kv } = await mesh(nc, { create: false })
  // While the server reloads its users nobody answers for the buckets.
  const grant = () => kv.grants.get(`app.${fp('a')}`).then((entry) => entry?.operation, () => 'unknown')
  await eventually('app is granted', async () => await grant() === 'PUT', 20_000)
  const operator = svid(gateway.keys.ed, 'operator/alice')
  t.match(await http(gateway.port, 'POST', '/modules/app/take-in', { token: operator, wait: 20_000 }), { status: 200, json: { outcome: 'current' } })
  t.match(await http(gateway.port, 'GET', '/modules/app/take-in', { token: operator }), { status: 200 })

  // A value is got and watched.
  const token = svid(gateway.keys.ed, 'module/app')
  t.match(await http(gateway.port, 'GET', '/provision/config/port', { token }), { status: 200, body: '1' })
  t.match(await http(gateway.port, 'GET', '/provision/config', { token }), { status: 200, json: { keys: ['port'] } })
  const watcher = await ws(t, gateway.port, { token })
  t.match((await watcher.watch('config', 'port')).result, { value: 1 })
  await apply(described(2))
  t.ok(await eventually('the change', () => watcher.changes('port').some(({ value }) => value === 2), 10_000))
  // The state is looked at, and a setting is written over HTTP.
  for (const path of ['/modules', '/modules/app', '/modules/app/take-ins', '/nodes', '/nodes/node-a']) {
    t.match(await http(gateway.port, 'GET', path, { token: operator }), { status: 200 }, path)
  }
  const set = await http(gateway.port, 'PUT', '/modules/app/config/port', { token: operator, headers: { 'Content-Type': 'application/json' }, body: '3', wait: 20_000 })
  t.match(set, { status: 200 })
  t.ok(await eventually('the setting', () => watcher.changes('port').some(({ value }) => value === 3), 10_000))
  // Off its node: a composition is purged, and the grants are deleted.
  await apply(described(2).replace('app: { nodes: [node-a]', 'app: { nodes: []'))
  await eventually('app has no grant', async () => ['DEL', 'PURGE'].includes(await grant() ?? ''), 10_000)

  t.same(refusals(), [])
  await t.rejects(apply(described(2, ', build: { commit: abcdef1, manifest: { config: { port: { default: 1 } } } }')), /writing builds done\.app\.\S+: the bus does not let this user do that/,
    'what is not the operators\' is said to be refused')
  t.match(refusals(), [/Publish Violation.*KV\.mesh_builds/], 'and the log is where refusals stand')
  t.ok(readFileSync(provisionerSeedFile(dataDir, 'node-a'), 'utf8').startsWith('SU'))
  await nc.close()
})

/** What a role must be refused, besides all that is not named in its rights: an act a line. */
const forbidden: Record<Role, { publish: string[], subscribe?: string[] }> = {
  gateway: {
    publish: ['$JS.API.INFO', '$JS.API.STREAM.INFO.KV_mesh_trunk', '$JS.API.STREAM.MSG.GET.KV_mesh_settings', '$KV.mesh_settings.app', 'mesh.broker.s1.applied']
  },
  'take-in': {
    publish: [
      '$KV.mesh_builds.done.app.x', '$KV.mesh_trunk.app', '$KV.mesh_inventory.assignment.app', '$KV.mesh_inventory.seat.broker', '$KV.mesh_inventory.node.node-a',
      '$JS.API.CONSUMER.CREATE.KV_mesh_compositions', '$JS.API.CONSUMER.CREATE.KV_mesh_inventory', '$JS.API.CONSUMER.CREATE.KV_mesh_inventory.x'
    ],
    subscribe: ['mesh.broker.s1.applied']
  },
  provisioner: {
    publish: [
      'mesh.provision.node-b.app.changed', 'mesh.provision.node-a.app.get', '$KV.mesh_compositions.node-a.app', '$JS.API.STREAM.MSG.GET.KV_mesh_compositions',
      '$JS.API.CONSUMER.CREATE.KV_mesh_compositions', '$JS.API.CONSUMER.CREATE.KV_mesh_compositions.x', '$JS.API.CONSUMER.CREATE.KV_mesh_compositions.x.>',
      '$JS.API.CONSUMER.CREATE.KV_mesh_compositions.x.$KV.mesh_compositions.node-b.*', '$JS.API.CONSUMER.DURABLE.CREATE.KV_mesh_compositions.x',
      '$JS.API.CONSUMER.CREATE.KV_mesh_inventory.x.$KV.mesh_inventory.*.*', '$JS.API.STREAM.INFO.KV_mesh_settings'
    ],
    subscribe: ['mesh.provision.node-b.*.get', 'mesh.provision.*.*.get', 'mesh.provision.node-a.*.changed', '$SRV.>', '$SRV.PING.mesh-broker']
  },
  broker: {
    publish: [
      'mesh.provision.node-a.app.changed', '$KV.mesh_compositions.node-a.broker', '$KV.mesh_inventory.seat.broker',
      '$JS.API.CONSUMER.CREATE.KV_mesh_inventory.x.$KV.mesh_inventory.*.*', '$JS.API.STREAM.MSG.GET.KV_mesh_compositions'
    ],
    subscribe: ['mesh.provision.node-a.*.get', 'mesh.broker.s2.applied', 'mesh.broker.*.applied']
  },
  builder: {
    publish: [
      '$KV.mesh_trunk.app', '$KV.mesh_settings.app', '$KV.mesh_builds.other.app', '$JS.API.STREAM.MSG.GET.KV_mesh_settings', '$JS.API.STREAM.INFO.KV_mesh_settings',
      '$JS.API.CONSUMER.CREATE.KV_mesh_builds', '$JS.API.CONSUMER.CREATE.KV_mesh_builds.x.$KV.mesh_builds.>', '$SRV.PING'
    ]
  },
  indexer: { publish: ['$KV.mesh_builds.done.app.x', '$KV.mesh_inventory.module.app', '$JS.API.STREAM.MSG.GET.KV_mesh_builds', '$JS.API.CONSUMER.CREATE.KV_mesh_trunk'] },
  operator: {
    publish: [
      '$KV.mesh_compositions.node-a.app', '$KV.mesh_grants.app.x', '$KV.mesh_takeins.app', '$KV.mesh_trunk.app', '$KV.mesh_builds.done.app.x', '$KV.mesh_inventory.seat.other',
      '$JS.API.CONSUMER.CREATE.KV_mesh_settings', '$JS.API.CONSUMER.CREATE.KV_mesh_settings.x.$KV.mesh_settings.*'
    ],
    subscribe: ['$KV.>']
  }
}

/** What nobody may. */
const never = {
  publish: [
    ...bucketNames.flatMap((bucket) => [`DELETE.KV_mesh_${bucket}`, `PURGE.KV_mesh_${bucket}`, `UPDATE.KV_mesh_${bucket}`, `RESTORE.KV_mesh_${bucket}`]),
    ...bucketNames.filter((bucket) => !['compositions', 'grants'].includes(bucket)).map((bucket) => `MSG.DELETE.KV_mesh_${bucket}`), 'CREATE.other', 'LIST', 'NAMES'
  ].map((call) => `$JS.API.STREAM.${call}`).concat('$JS.API.CONSUMER.NAMES.KV_mesh_inventory', '$JS.API.CONSUMER.LIST.KV_mesh_compositions', 'anything', 'mesh.else'),
  subscribe: ['>', '*', 'mesh.>', '_INBOX.>', '_INBOX.*.>', '_INBOX.UOTHER.>', '$JS.>', '$KV.mesh_settings.*', '$SYS.>']
}

t.test('whatever is not in a role\'s rights is refused by the server', async (t) => {
  const users = new Users(t)
  const server = await natsServer(t, { config: users.conf() })
  await mesh(await users.connect(t, server.url, 'root'))
  for (const role of Object.keys(roles) as Role[]) {
    const user = await moduleOnBus(t, server.url, users.of(role).seed)
    const publish = [...never.publish, ...forbidden[role].publish, ...(role === 'gateway' || role === 'take-in' ? [] : ['mesh.provision.node-a.app.get', 'mesh.broker.s1.applied']),
      ...(role === 'provisioner' ? [] : ['mesh.provision.node-a.app.changed']),
      ...(role === 'provisioner' || role === 'broker' ? [] : ['_INBOX.UOTHER.answer']),
      ...(role === 'take-in' ? [] : ['$JS.API.STREAM.MSG.DELETE.KV_mesh_compositions', '$JS.API.STREAM.MSG.DELETE.KV_mesh_grants', ...bucketNames.map((bucket) => `$JS.API.STREAM.CREATE.KV_mesh_${bucket}`)])]
    const subscribe = [...never.subscribe, ...forbidden[role].subscribe ?? []]
    t.same(await user.refused(publish, subscribe), [...publish.map((subject) => `publish ${subject}`), ...subscribe.map((subject) => `subscription ${subject}`)], role)
    await user.nc.close()
  }
})

/** Asks JetStream as a user may, whatever the payload says; answers its error number, 0 where there is none. */
async function asked (nc: NatsConnection, subject: string, payload: object): Promise<number> {
  const { error } = JSON.parse((await nc.request(subject, JSON.stringify(payload))).string()) as { error?: { err_code: number } }
  return error?.err_code ?? 0
}

t.test('what a subject allows cannot be widened by what the call says', async (t) => {
  const users = new Users(t)
  const server = await natsServer(t, { config: users.conf() })
  const root = await users.connect(t, server.url, 'root')
  const buckets = await mesh(root)
  await buckets.put('compositions', 'node-b.app', { values: 'of another node' })

  // A provisioner's consumer is of its node's keys, whatever filter the request names.
  const node = await users.connect(t, server.url, 'provisioner')
  const create = '$JS.API.CONSUMER.CREATE.KV_mesh_compositions.x.$KV.mesh_compositions.node-a.*'
  const consumer = (config: object) => ({ stream_name: 'KV_mesh_compositions', config: { name: 'x', deliver_subject: `_INBOX.${users.of('provisioner').key}.x`, ack_policy: 'none', ...config } })
  for (const config of [{ filter_subject: '$KV.mesh_compositions.node-b.*' }, { filter_subject: '>' }, {}]) {
    t.not(await asked(node, create, consumer(config)), 0, JSON.stringify(config))
  }
  t.not(await asked(node, create, { ...consumer({ filter_subject: '$KV.mesh_compositions.node-a.*' }), stream_name: 'KV_mesh_inventory' }), 0, 'another stream')
  t.equal(await asked(node, create, consumer({ filter_subject: '$KV.mesh_compositions.node-a.*' })), 0, 'its own')

  // Making a bucket changes none that stands.
  const gateway = await users.connect(t, server.url, 'take-in')
  const make = '$JS.API.STREAM.CREATE.KV_mesh_settings'
  const before = (await buckets.jsm.streams.info('KV_mesh_settings')).config
  t.not(await asked(gateway, make, { ...before, subjects: ['$KV.mesh_settings.>', 'orders.>'] }), 0)
  t.not(await asked(gateway, make, { ...before, max_msgs: 1 }), 0)
  t.not(await asked(gateway, make, { ...before, name: 'KV_other' }), 0, 'a name other than the subject\'s')
  t.same((await buckets.jsm.streams.info('KV_mesh_settings')).config, before)
  await Promise.all([root.close(), node.close(), gateway.close()])
})

t.test('who answers an ask learns of no other inbox of the process that asked', async (t) => {
  const users = new Users(t)
  const server = await natsServer(t, { config: users.conf() })
  const nc = await users.connect(t, server.url, 'take-in')
  const root = await users.connect(t, server.url, 'root')
  const replies: string[] = []
  root.subscribe('mesh.>', { callback: (_, ask) => { replies.push(ask.reply ?? ''); ask.respond(Empty, { headers: headers(200, 'ok') }) } })
  await root.flush()
  for (let i = 0; i < 2; i++) {
    const asker = new Asker(nc)
    atEnd(t, () => asker.close())
    await asker.ask('mesh.provision.node-a.app.get', encode('{}'), 2000)
  }
  const inboxes = replies.map((reply) => reply.split('.').slice(0, 3).join('.'))
  const own = `_INBOX.${users.of('take-in').key}.`
  t.ok(inboxes.every((inbox) => inbox.startsWith(own)))
  const [one = '', other = ''] = inboxes.map((inbox) => inbox.slice(own.length))
  t.match(one, /^[\w-]{22}$/)
  t.not(one.slice(0, 11), other.slice(0, 11), 'not one of a row, as the library\'s are: 128 random bits each')
  await Promise.all([nc.close(), root.close()])
})

t.test('a gateway whose user may not take in serves values, says why it takes nothing in, and begins once it may', async (t) => {
  const users = new Users(t)
  const server = await natsServer(t, { config: users.conf() })
  const root = await users.connect(t, server.url, 'root')
  const buckets = await mesh(root)
  await buckets.node('node-a')
  await buckets.ready('app')
  await buckets.holder('broker', 'node-a')
  const node = await users.connect(t, server.url, 'provisioner')
  const answers = await provisioner(t, node)
  answers.set('app/config/port', { value: 1 })

  const gateway = await startGateway(t, { natsUrl: server.url, ready: true, env: { NATS_NKEY_SEED_FILE: users.of('gateway').seedFile } })
  const [token, operator] = [svid(gateway.keys.ed, 'module/app'), svid(gateway.keys.ed, 'operator/alice')]
  const watcher = await ws(t, gateway.port, { token })
  t.match((await watcher.watch('config', 'port')).result, { value: 1 })
  for (let port = 2; port < 30; port++) {
    answers.change('app/config/port', { value: port })
    await eventually('the change', () => watcher.changes('port').some(({ value }) => value === port))
  }
  t.match(await http(gateway.port, 'GET', '/provision/config/port', { token }), { status: 200, body: '29' })
  for (const [method, path] of [['POST', '/modules/app/take-in'], ['GET', '/modules/app/take-in'], ['DELETE', '/modules/app/config/port']] as const) {
    t.match(await http(gateway.port, method, path, { token: operator }), {
      status: 503, json: { detail: /user on the bus may not take in .*mesh-gateway rights take-in/ }
    }, `${method} ${path}`)
  }
  // One look at the buckets, and no other try; a warning a bucket, and one that says what it means.
  t.equal(server.log.match(/Violation/g)?.length, bucketNames.length)
  t.equal(gateway.logged(/"level":40/).length, bucketNames.length + 1, JSON.stringify(gateway.logged(/"level":40/)))
  t.match(gateway.logged(/serves values alone/), [{ level: 40 }])

  t.match(await http(gateway.port, 'GET', '/modules', { token: operator }), { status: 503, json: { detail: /bus does not let this user/ } })

  server.configure(users.conf({ gateway: 'take-in' }))
  await server.kill()
  await server.start()
  const answer = await eventually('a take-in', async () => {
    const one = await http(gateway.port, 'POST', '/modules/app/take-in', { token: operator, wait: 20_000 })
    return one.status === 200 && one
  }, 20_000)
  t.match(answer, { json: { outcome: 'taken-in' } })
})

t.test('agents serve with their rights, and are seen by who lists services', async (t) => {
  const users = new Users(t)
  const server = await natsServer(t, { config: users.conf() })
  const root = await users.connect(t, server.url, 'root')
  const buckets = await mesh(root)
  await buckets.put('compositions', 'node-a.app', '{}')
  const agent = startProvisioner(await users.connect(t, server.url, 'provisioner'), { node: 'node-a', prefix: 'mesh_', log: quiet })
  const folder = temporaryFolder(t)
  const files = Object.fromEntries(['CONFIG', 'USERS', 'FIXED_USERS', 'PID_FILE'].map((name) => [`BROKER_${name}`, join(folder, name)]))
  const broker = startBroker(await users.connect(t, server.url, 'broker'), {
    prefix: 'mesh_', log: quiet, config: { ...files, BROKER_SERVER: 's1', BROKER_MONITOR_URL: 'http://127.0.0.1:1', BROKER_NATS_SERVER: 'nats-server' } as never
  })
  atEnd(t, () => agent.stop())
  atEnd(t, () => broker.stop())
  await Promise.all([agent.ready, broker.ready])
  const services = root.services.client()
  const names: string[] = []
  for await (const { name } of await services.ping()) names.push(name)
  t.same(names.sort(), ['mesh-broker', 'mesh-provisioner'])
  for (const name of names) for await (const info of await services.info(name)) t.equal(info.name, name)
  t.equal((await root.request('mesh.provision.node-a.none.list')).headers?.get('Nats-Service-Error-Code'), '403')
  // Who asks cannot get an agent to write in its stead, nor to speak to anybody but an inbox.
  root.publish('mesh.provision.node-a.app.list', '', { reply: '$KV.mesh_settings.app' })
  root.publish('$SRV.PING', '', { reply: '$KV.mesh_settings.app' })
  await eventually('the refusal', () => /Publish Violation.*\$KV\.mesh_settings\.app/.test(server.log))
  t.equal(await buckets.get('settings', 'app'), undefined)
  await root.close()
})

t.test('whoever has not the rights of its role tries on, and says so once', async (t) => {
  const users = new Users(t)
  // Both may do nothing of what they are there for.
  const server = await natsServer(t, { config: users.conf({ gateway: 'builder', broker: 'gateway' }) })
  const root = await users.connect(t, server.url, 'root')
  await mesh(root)
  const gateway = await startGateway(t, { natsUrl: server.url, env: { NATS_NKEY_SEED_FILE: users.of('gateway').seedFile } })
  const said: string[] = []
  const note = (_: object, message: string) => { said.push(message) }
  const agent = standingService(await users.connect(t, server.url, 'broker'), { debug () {}, info: note, warn: note, error: note }, {
    name: 'mesh-broker', description: '', metadata: {}, queue: 'q', endpoints: { applied: { subject: 'mesh.broker.s1.applied', answer () {} } }
  })
  atEnd(t, () => agent.stop())
  const refused = (subject: string) => server.log.split('\n').filter((line) => line.includes('Violation') && line.includes(subject)).length
  await eventually('a few tries', () => refused('.changed') > 3 && refused('mesh.broker.s1.applied') > 2, 15_000)
  t.equal(gateway.logged(/changes are not heard/).length, 1)
  t.same(said, ['the service on the bus ended; starting it again'])

  // The rights come while the connections stay.
  server.configure(users.conf())
  await server.reload()
  await gateway.ready()
  await agent.ready
  t.same(said.slice(1), ['answering'])
  await root.close()
})

t.test('docs/security.md shows exactly the rights that each role has, and the command prints them', async (t) => {
  const text = readFileSync(join(packageRoot, 'docs', 'security.md'), 'utf8')
  const shown = new Map([...text.matchAll(/^### `([\w-]+)`[^]*?^```\n([^]*?)^```/gm)].map(([, role = '', conf = '']) => [role, conf.trimEnd()]))
  t.same([...shown.keys()].sort(), Object.keys(roles).sort())
  for (const role of Object.keys(roles) as Role[]) {
    t.equal(shown.get(role), confUser('U…', rightsOf(role, { user: 'U…', prefix: 'mesh_', node: 'node-a', server: 'node-c' })), role)
  }

  const users = new Users(t)
  const print = async (...args: string[]): Promise<string> => {
    const before = process.stdout.write
    let printed = ''
    process.stdout.write = ((text: string) => { printed += text; return true }) as never
    try { await main(['rights', ...args]) } finally { process.stdout.write = before }
    return printed
  }
  const { key } = users.of('provisioner')
  t.ok(fromPublic(key))
  t.equal(await print('provisioner', '--node', 'node-a', '--user', key),
    `# ${roles.provisioner.about}\n${confUser(key, rightsOf('provisioner', { user: key, prefix: 'mesh_', node: 'node-a' }))}\n`)
  const wrong: Array<[string[], RegExp]> = [
    [[], /^rights needs ROLE/],
    [['king', '--user', key], /^rights: "king" is no role: expected gateway, take-in, provisioner, broker, builder, indexer, operator$/],
    [['builder'], /^rights: --user is missing, but it takes the public key/],
    [['builder', '--user', key.slice(1)], /^rights: --user is "/],
    [['provisioner', '--user', key], /^rights: provisioner needs --node NAME$/],
    [['provisioner', '--user', key, '--node', 'A.*'], /^rights: --node is "A\.\*", but it takes a name/],
    [['broker', '--user', key, '--node', 'node-a', '--server', 's1'], /^rights: broker does not take --node$/]
  ]
  for (const [args, message] of wrong) await t.rejects(print(...args), { name: 'UsageError', message }, args.join(' '))
  t.throws(() => rightsOf('provisioner', { user: key, prefix: 'mesh_' }), /need the name of a node/)
})
