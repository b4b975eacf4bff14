import t from 'tap'
import { execFileSync } from 'node:child_process'
import { chmodSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { nkeyAuthenticator, type Msg, type NatsConnection } from 'nats'
import { createUser, type KeyPair } from 'nkeys.js'
import { loadBrokerConfig, type BrokerEnvironment } from '../src/agents/broker-config.js'
import { startBroker } from '../src/agents/broker.js'
import { confRights, confString, exchangeFixedUsers, renderUserList } from '../src/agents/user-list.js'
import { UsersFile } from '../src/agents/users-file.js'
import { findNatsServer } from '../src/dev/nats-binary.js'
import { client, decode } from './support/bus/client.js'
import { mesh, type Mesh } from './support/bus/buckets.js'
import { NatsServer } from './support/bus/nats-server.js'
import { freePort, HOST, temporaryFolder } from './support/machine.js'
import { atEnd, type Owner } from './support/owner.js'
import { eventually, within } from './support/until.js'

const nats = findNatsServer() ?? ''
const row = (module: string, users: Array<{ node: string, user: string }>, publish: string[] = [], subscribe: string[] = []) =>
  ({ module, publish, subscribe, users })
const user = (key: KeyPair, node = 'node-a') => ({ node, user: key.getPublicKey() })

/** Whether nats-server itself takes a list. */
function isValid (t: Owner, list: string): boolean {
  const folder = temporaryFolder(t)
  writeFileSync(join(folder, 'users.conf'), list)
  writeFileSync(join(folder, 'main.conf'), 'port: 4222\nauthorization { include "users.conf" }\n')
  try {
    execFileSync(nats, ['-t', '-c', join(folder, 'main.conf')], { stdio: 'pipe' })
    return true
  } catch { return false }
}

t.test('the list: strings that the server reads back, and no direction that is empty', async (t) => {
  t.equal(confString('a.b'), '"a.b"')
  t.equal(confString('a.\\"b'), '"a.\\\\\\"b"')
  for (const bad of ['a\nb', 'a\u0000', 'a\u007f', 'a\u0085', '\ud800']) t.throws(() => confString(bad), JSON.stringify(bad))
  t.equal(confRights([]), '{ deny: ">" }')
  t.equal(confRights(['a', 'b.>']), '{ allow: ["a", "b.>"] }')

  const [one, two, three] = [createUser(), createUser(), createUser()]
  const odd = ['a.\\d', 'a.\\"q', "it's", 'a#b', 'a//b', 'a{}[](),;:=b', 'é.日本', '%s', 'include', 'a$b', 'true', '1']
  const rows = [row('zeta', [user(two)]), row('alpha', [user(three, 'node-b'), user(one)], odd, odd)]
  const { text, dropped } = renderUserList('', rows)
  t.same(dropped, [])
  t.ok(isValid(t, text), text)
  t.equal(renderUserList('', [...rows].reverse()).text, text, 'equal lists have equal bytes')
  t.same(text.match(/U[A-Z2-7]{55}, |"U[A-Z2-7]{55}"/g), [one, three, two].map((key) => `"${key.getPublicKey()}"`))
  t.match(text, `_INBOX.${one.getPublicKey()}.>`)
})

t.test('the list: its fixed users are exchanged, and those of modules stay byte by byte', async (t) => {
  const [old, fresh, module] = [createUser(), createUser(), createUser()].map((key) => `{ nkey: ${key.getPublicKey()} }`) as [string, string, string]
  const rows = [row('some', [user(createUser())], ['a'])]
  t.equal(exchangeFixedUsers(renderUserList(old, rows).text, fresh), renderUserList(fresh, rows).text)
  t.equal(exchangeFixedUsers(renderUserList(old, []).text, ''), renderUserList('', []).text)
  // A file of fixed users that was copied from a list, its dividing line with it.
  const copied = renderUserList(old, rows).text.split('\n').slice(2, 4).join('\n')
  t.equal(exchangeFixedUsers(renderUserList(copied, rows).text, fresh), renderUserList(fresh, rows).text)
  t.equal(exchangeFixedUsers(`users: [\n${old}\n${module}\n]\n`, fresh), undefined, 'a list in which nobody can tell them apart')
})

t.test('the list: a bad row is left out, with the reason, and costs nobody else anything', async (t) => {
  const [good, fixed] = [createUser(), createUser()]
  const other = () => [user(createUser())]
  const cut = good.getPublicKey().slice(0, -1)
  const bad: Array<[unknown, RegExp]> = [
    [row('empty', other(), ['']), /the subject "" of publish is empty/],
    [row('dots', other(), [], ['a..b']), /of subscribe has an empty token/],
    [row('space', other(), ['a b']), /white space/],
    [row('line', other(), ['a\n"}']), /white space|control/],
    [row('all', other(), ['>']), /would match/],
    [row('server', other(), ['$SYS.>']), /begins with \$/],
    [row('mesh', other(), ['mesh.provision.node-a.other.get']), /mesh/],
    [row('long', other(), ['a'.repeat(10_000)]), /longer/],
    [row('half', other(), ['\ud800']), /surrogate/],
    [row('Bad Name', other()), /does not fit at \/module/],
    [row('node', [{ node: 'Node A', user: createUser().getPublicKey() }]), /does not fit at \/users\/0\/node/],
    [row('key', [{ node: 'node-a', user: '"} evil' }]), /no public user nkey/],
    [row('checksum', [{ node: 'node-a', user: cut + (good.getPublicKey().endsWith('A') ? 'B' : 'A') }]), /checksum/],
    [row('twice', [user(good, 'node-z')]), /same key/],
    [row('taken', [user(fixed)]), /same key/],
    [{ module: 'half', users: [] }, /does not fit/], ['text', /does not fit/], [null, /does not fit/]
  ]
  const { text, dropped } = renderUserList(`{ nkey: ${fixed.getPublicKey()} }`, [row('good', [user(good)], ['a']), ...bad.map(([one]) => one)])
  t.ok(isValid(t, text), text)
  t.equal(dropped.length, bad.length)
  for (const [, why] of bad) t.ok(dropped.some((one) => why.test(one.why)), String(why))
  t.same(text.match(/nkey: "?U[A-Z2-7]{55}/g)?.length, 2, 'the fixed user and the good row')
})

t.test('the variables: one line that names what is missing or wrong', async (t) => {
  const all = {
    BROKER_SERVER: 'node-c', BROKER_CONFIG: 'a', BROKER_USERS: 'b', BROKER_FIXED_USERS: 'c', BROKER_PID_FILE: 'd', BROKER_MONITOR_URL: 'http://127.0.0.1:8222'
  }
  t.same(loadBrokerConfig({ ...all, OTHER: 'x' }), { ...all, BROKER_NATS_SERVER: 'nats-server' })
  t.throws(() => loadBrokerConfig({ ...all, BROKER_USERS: '' }), { name: 'ConfigError', message: /^BROKER_USERS is not set, but it is needed: the included file/ })
  t.throws(() => loadBrokerConfig({ ...all, BROKER_SERVER: 'Node C' }), { name: 'ConfigError', message: /^BROKER_SERVER is "Node C", but it takes/ })
  t.throws(() => loadBrokerConfig({ ...all, BROKER_MONITOR_URL: 'localhost:8222' }), { name: 'ConfigError', message: /^BROKER_MONITOR_URL is/ })
})

interface Bus { server: NatsServer, config: BrokerEnvironment, nc: NatsConnection, kv: Mesh, folder: string, fixed: string }

/** A server with one fixed user, who may do all, and its users in a file that the agent owns. */
async function bus (t: Owner): Promise<Bus> {
  const folder = temporaryFolder(t, 'broker')
  const at = (name: string) => join(folder, name)
  const monitor = await freePort()
  const config: BrokerEnvironment = {
    BROKER_SERVER: 'node-c',
    BROKER_CONFIG: at('server.conf'),
    BROKER_USERS: at('users.conf'),
    BROKER_FIXED_USERS: at('fixed.conf'),
    BROKER_PID_FILE: at('nats.pid'),
    BROKER_MONITOR_URL: `http://${HOST}:${monitor}`,
    BROKER_NATS_SERVER: nats
  }
  const operator = createUser()
  const fixed = `{ nkey: ${operator.getPublicKey()} }\n`
  writeFileSync(config.BROKER_FIXED_USERS, fixed)
  await new UsersFile(config).writeFirst()
  const server = new NatsServer(t, await freePort(), folder)
  server.configure(`http: "${HOST}:${monitor}"\npid_file: "${config.BROKER_PID_FILE}"\nauthorization {\n  include "users.conf"\n}`)
  await server.start()
  const nc = await client(t, server.url, { authenticator: nkeyAuthenticator(operator.getSeed()) })
  return { server, config, nc, kv: await mesh(nc), folder, fixed }
}

/** The agent, and what it logged as an error. */
async function agent (t: Owner, { nc, config }: Bus) {
  const errors: string[] = []
  const note = (details: object, message: string) => { errors.push(`${message} ${JSON.stringify(details)}`) }
  const started = startBroker(nc, { prefix: 'mesh_', config, log: { debug () {}, info () {}, warn: note, error: note } })
  atEnd(t, () => started.stop())
  await started.ready
  return { errors, stop: () => started.stop() }
}

const seat = { module: 'bus', node: 'node-c' }
const list = async (kv: Mesh, users: unknown) => `${await kv.epoch('compositions')}.${await kv.put('compositions', 'node-c.bus', { node: 'node-c', module: 'bus', users })}`
const verdict = (message: Msg) => message.headers?.get('Nats-Service-Error-Code')
  ? `${message.headers.get('Nats-Service-Error-Code')} ${message.headers.get('Nats-Service-Error')}`
  : decode(message.data)
const applied = async (nc: NatsConnection, revision: string) =>
  verdict(await nc.request('mesh.broker.node-c.applied', JSON.stringify({ revision }), { timeout: 10_000 }))
const loadTime = async ({ config }: Bus) =>
  (await (await fetch(`${config.BROKER_MONITOR_URL}/varz`)).json() as { config_load_time: string }).config_load_time

/** A module's connection, and a way to learn which of some actions the server refuses. */
async function connected (t: Owner, { server }: Bus, key: KeyPair) {
  const nc = await client(t, server.url, { authenticator: nkeyAuthenticator(key.getSeed()), inboxPrefix: `_INBOX.${key.getPublicKey()}`, reconnect: false })
  const heard: string[] = []
  void (async () => {
    for await (const status of nc.status()) {
      const { operation, subject } = status.permissionContext ?? {}
      if (operation !== undefined) heard.push(`${operation} ${subject}`)
    }
  })()
  const refused = async (publish: string[], subscribe: string[]) => {
    heard.length = 0
    for (const subject of publish) nc.publish(subject, '')
    for (const subject of subscribe) nc.subscribe(subject, { callback () {} })
    // The server refuses in order, so what no user may do comes last.
    nc.publish('$SYS.last', '')
    await eventually('the last refusal', () => heard.includes('publish $SYS.last'))
    return heard.slice(0, -1)
  }
  return { nc, refused, heard }
}

t.test('a module connects with its key, and may do exactly what its row and section 5 say', async (t) => {
  const stage = await bus(t)
  const { nc, kv } = stage
  const [some, none, operator] = [createUser(), createUser(), nc]
  await kv.put('inventory', 'seat.broker', seat)
  const { errors } = await agent(t, stage)
  const bad = [row('evil', [user(createUser())], ['a b']), row('evil2', [{ node: 'node-a', user: 'x' }])]
  const revision = await list(kv, [row('some', [user(some)], ['orders.created', 'audit.>'], ['orders.*']), ...bad, row('none', [user(none, 'node-b')])])
  t.equal(await applied(nc, revision), '{}')
  t.match(errors, [/left out.*"evil".*white space/, /left out.*"evil2".*nkey/], 'bad rows are logged and left out')
  t.notMatch(readFileSync(stage.config.BROKER_USERS, 'utf8'), /evil/)

  const own = 'mesh.provision.node-a.some'
  const one = await connected(t, stage, some)
  t.same(await one.refused(
    ['orders.created', 'audit.x.y', `${own}.get`, `${own}.list`, 'orders.deleted', 'audit', 'x', `${own}.changed`, 'mesh.provision.node-b.some.get',
      'mesh.provision.node-a.none.get', '_INBOX.x', '$JS.API.INFO', '$KV.mesh_trunk.some', '$SRV.PING', 'mesh.broker.node-c.applied'],
    ['orders.created', `_INBOX.${some.getPublicKey()}.x`, `${own}.changed`, 'orders.a.b', '>', '_INBOX.>', `${own}.get`, 'mesh.provision.node-a.none.changed']
  ), [
    'publish orders.deleted', 'publish audit', 'publish x', `publish ${own}.changed`, 'publish mesh.provision.node-b.some.get',
    'publish mesh.provision.node-a.none.get', 'publish _INBOX.x', 'publish $JS.API.INFO', 'publish $KV.mesh_trunk.some', 'publish $SRV.PING', 'publish mesh.broker.node-c.applied',
    'subscription orders.a.b', 'subscription >', 'subscription _INBOX.>', `subscription ${own}.get`, 'subscription mesh.provision.node-a.none.changed'
  ])
  operator.subscribe(`${own}.get`, { callback: (_, message) => { message.respond('7') } })
  await operator.flush()
  t.equal(decode((await one.nc.request(`${own}.get`, '')).data), '7', 'it asks its provisioner and hears the answer')
  one.nc.subscribe('orders.asked', { callback: (_, message) => { message.respond('mine') } })
  await one.nc.flush()
  t.equal(decode((await operator.request('orders.asked', '')).data), 'mine', 'it answers whoever asks it')

  // With nats-server's allow_responses it would reach whatever a message names as its reply, one that it sent itself.
  const reached: string[] = []
  for (const subject of ['$KV.>', '$JS.API.>', 'mesh.broker.>', 'orders.answered']) operator.subscribe(subject, { callback: (_, { subject }) => { reached.push(subject) } })
  await operator.flush()
  const replies = ['$KV.mesh_settings.none', '$JS.API.STREAM.DELETE.KV_mesh_takeins', 'mesh.broker.node-c.applied', 'orders.answered', '_INBOX.x']
  one.nc.subscribe('orders.created', { callback: (_, { reply = '' }) => { one.nc.publish(reply, '{}') } })
  for (const reply of replies) one.nc.publish('orders.created', '', { reply })
  const refusals = await one.refused([], [])
  for (const reply of replies) if (!refusals.includes(`publish ${reply}`)) await eventually(`${reply} is refused`, () => one.heard.includes(`publish ${reply}`))
  await one.nc.flush()
  await operator.flush()
  t.same(reached, [], 'a message that it sends itself lets it reach nothing more')
  t.same((await stage.kv.get('settings', 'none')), undefined)

  const nothing = await connected(t, stage, none)
  const its = 'mesh.provision.node-b.none'
  t.same(await nothing.refused(['x', 'orders.created', `${its}.get`, `${its}.list`], ['x', '>', `${its}.changed`]),
    ['publish x', 'publish orders.created', 'subscription x', 'subscription >'], 'empty lists allow nothing')

  const closed = one.nc.closed()
  t.equal(await applied(nc, await list(kv, [row('none', [user(none, 'node-b')])])), '{}')
  t.ok(await within(closed.then(() => 'closed'), 5000), 'a credential that was taken away is off the bus')
  await t.rejects(connected(t, stage, some), { code: 'AUTHORIZATION_VIOLATION' })
  t.notOk(nothing.nc.isClosed(), 'and nobody else is')
})

t.test('applied is answered by what the server runs with: a list or a later one, or the reason', async (t) => {
  const stage = await bus(t)
  const { nc, kv, config, folder } = stage
  const { errors } = await agent(t, stage)
  const key = createUser()
  for (const payload of ['', 'x', '{}', '{"revision": 7}', '{"revision": "7"}', '{"revision": "a.b"}']) {
    t.match(verdict(await nc.request('mesh.broker.node-c.applied', payload)), /^400 the ask is malformed/, payload)
  }
  // Asked before the seat and the list stand: the answer waits for them.
  const early = applied(nc, `${await kv.epoch('compositions')}.1`)
  await kv.put('inventory', 'seat.broker', seat)
  const first = await list(kv, [row('m1', [user(key)])])
  t.equal(await early, '{}')
  const later = await list(kv, [row('m1', [user(key)], ['a'])])
  t.same(await Promise.all(Array.from({ length: 50 }, (_, i) => applied(nc, i % 2 ? first : later))), Array.from({ length: 50 }, () => '{}'), 'many at once')
  t.equal(await applied(nc, first), '{}', 'a later list counts for an earlier one')
  t.match(readFileSync(config.BROKER_USERS, 'utf8'), /allow: \["a", "mesh\.provision\.node-a\.m1\.get"/)

  // The same list again, and a list in another order: the server is left alone.
  const before = await loadTime(stage)
  t.equal(await applied(nc, await list(kv, [row('m1', [user(key)], ['a'])])), '{}')
  t.equal(await loadTime(stage), before, 'no reload where the bytes are equal')

  // The server would refuse the file: it keeps the one it has, and who asks hears why; asking again tries again.
  const stands = readFileSync(config.BROKER_USERS, 'utf8')
  writeFileSync(config.BROKER_FIXED_USERS, `${stage.fixed}{ nkey: "Unonsense" }\n`)
  const refused = await list(kv, [row('m1', [user(key)], ['b'])])
  t.match(await applied(nc, refused), /^500 nats-server refuses the user list: .*Not a valid public nkey/)
  t.equal(readFileSync(config.BROKER_USERS, 'utf8'), stands)
  t.same(readdirSync(folder).filter((name) => name.startsWith('.')), [], 'nothing is left behind')
  writeFileSync(config.BROKER_FIXED_USERS, stage.fixed)
  t.equal(await applied(nc, refused), '{}')

  // What is no list, or is gone, takes nobody's rights away.
  t.match(await applied(nc, await list(kv, undefined)), /^500 compositions node-c.bus carries no user list/)
  t.match(await applied(nc, `${await kv.epoch('compositions')}.${await kv.put('compositions', 'node-c.bus', 'no JSON')}`), /^500 compositions node-c.bus is no JSON/)
  await kv.kv.compositions.purge('node-c.bus')
  await eventually('the removal was seen', () => errors.some((line) => line.includes('was removed')))
  t.match(readFileSync(config.BROKER_USERS, 'utf8'), /"b"/)

  const [epoch, revision] = (await list(kv, [])).split('.')
  t.match(await applied(nc, `${epoch}.${Number(revision) + 5}`), new RegExp(`^500 no revision ${epoch}\\.${Number(revision) + 5} of the user list came within 4000 ms; the last one seen is ${epoch}\\.${revision}`))
  t.notMatch(readFileSync(config.BROKER_USERS, 'utf8'), /m1/)
  t.equal((statSync(config.BROKER_USERS).mode & 0o777), 0o640)
})

t.test('an agent that starts applies what stands though nobody asks, and leaves a server alone that has it', async (t) => {
  const stage = await bus(t)
  const { nc, kv, config } = stage
  const key = createUser()
  await kv.put('inventory', 'seat.broker', seat)
  await list(kv, [row('m1', [user(key)])])
  const first = await agent(t, stage)
  await eventually('the list is applied', async () => readFileSync(config.BROKER_USERS, 'utf8').includes(key.getPublicKey()))
  const { nc: module } = await eventually('the module gets on the bus', () => connected(t, stage, key).catch(() => undefined))
  await first.stop()

  // What the file says and the server does not run with counts as nothing: it is reloaded.
  const text = readFileSync(config.BROKER_USERS, 'utf8')
  writeFileSync(config.BROKER_USERS, text)
  const before = await loadTime(stage)
  const second = await agent(t, stage)
  await eventually('the server has read the file that was written after its last reload', async () => await loadTime(stage) !== before)
  t.notOk(module.isClosed())
  await second.stop()

  rmSync(config.BROKER_PID_FILE)
  const third = await agent(t, stage)
  t.match(await applied(nc, await list(kv, [])), /^500 the server's pid file .* cannot be read \(ENOENT\)/)
  await third.stop()
  writeFileSync(config.BROKER_CONFIG, readFileSync(config.BROKER_CONFIG, 'utf8').replace('include', '# include'))
  chmodSync(config.BROKER_USERS, 0o644)
  const fourth = await agent(t, stage)
  t.match(await applied(nc, await list(kv, [row('m2', [user(createUser())])])), /does not include the user list/)
  await fourth.stop()
})

t.test('a change of the fixed users counts by itself: on a new bus, beside the users of modules, and whatever became of their list', async (t) => {
  const stage = await bus(t)
  const { nc, kv, config } = stage
  const [first, second, third, module] = [createUser(), createUser(), createUser(), createUser()]
  const fixed = (...keys: KeyPair[]) => writeFileSync(config.BROKER_FIXED_USERS, stage.fixed + keys.map((key) => `{ nkey: ${key.getPublicKey()} }\n`).join(''))
  const getsOn = (key: KeyPair) => eventually('the user gets on the bus', () => connected(t, stage, key).catch(() => undefined))
  const one = await agent(t, stage)

  // A new bus: nobody has the seat.
  fixed(first)
  const its = await getsOn(first)

  // Beside the users of modules, though no composition moves.
  await kv.put('inventory', 'seat.broker', seat)
  const revision = await list(kv, [row('m1', [user(module)])])
  t.equal(await applied(nc, revision), '{}')
  const { nc: modules } = await connected(t, stage, module)
  fixed(second)
  await getsOn(second)
  t.ok(await within(its.nc.closed().then(() => 'closed'), 5000), 'and one that was taken out is off the bus')
  t.equal(await applied(nc, revision), '{}', 'what was applied stays so')
  t.same(one.errors, [])

  // One that the server does not take: what stands stays, and it is said once.
  const stands = readFileSync(config.BROKER_USERS, 'utf8')
  writeFileSync(config.BROKER_FIXED_USERS, `${stage.fixed}{ nkey: "Unonsense" }\n`)
  await eventually('the refusal is logged', () => one.errors.length > 0)
  const next = await list(kv, [row('m1', [user(module)], ['a'])])
  const refused = /^500 nats-server refuses the user list: .*Not a valid public nkey/
  t.match(await applied(nc, next), refused)
  t.match(await applied(nc, next), refused, 'who asks hears it each time')
  t.match(one.errors, [/the users could not be applied .*nats-server refuses the user list/])
  t.equal(one.errors.length, 1)
  t.equal(readFileSync(config.BROKER_USERS, 'utf8'), stands)
  await (await connected(t, stage, second)).nc.close()
  fixed(first)
  await getsOn(first)
  t.equal(await applied(nc, next), '{}')

  // The composition is gone, and the agent another one, which never saw it.
  await one.stop()
  await kv.kv.compositions.purge('node-c.bus')
  const other = await agent(t, stage)
  fixed(third)
  await getsOn(third)
  await t.rejects(connected(t, stage, first), { code: 'AUTHORIZATION_VIOLATION' })
  t.notOk(modules.isClosed(), 'the module was on the bus all the time')
  await (await connected(t, stage, module)).nc.close()
  await other.stop()

  // A list that somebody else wrote, in which modules and others cannot be told apart, is left alone.
  const handmade = readFileSync(config.BROKER_USERS, 'utf8').replace(/^ +# .*\n/gm, '')
  writeFileSync(config.BROKER_USERS, handmade)
  const last = await agent(t, stage)
  await eventually('it is said', () => last.errors.some((line) => line.includes('was not written by this agent')))
  t.equal(readFileSync(config.BROKER_USERS, 'utf8'), handmade)
  await (await connected(t, stage, module)).nc.close()
})
