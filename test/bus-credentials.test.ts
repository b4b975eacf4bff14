/** How a process proves to the bus who it is, and the bus to it: TLS, nkeys and credentials files, and each of them exchanged while it runs. */
import { execFile } from 'node:child_process'
import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { credsAuthenticator, type NatsConnection } from 'nats'
import t from 'tap'
import { loadConfig, type Environment } from '../src/config.js'
import { connectBus } from '../src/nats/connection.js'
import { rightsOf } from '../src/nats/rights.js'
import { busUser, newInbox } from '../src/nats/user.js'
import { fp, mesh } from './support/bus/buckets.js'
import { client, encode } from './support/bus/client.js'
import { OperatorMode } from './support/bus/jwt.js'
import { natsServer } from './support/bus/nats-server.js'
import { Users } from './support/bus/users.js'
import { startGateway } from './support/gateway.js'
import { projectRoot, start, temporaryFolder } from './support/machine.js'
import { atEnd, type Owner } from './support/owner.js'
import { eventually, within } from './support/until.js'
import { authority, certificate, serverCertificate, type Certificate } from './support/wire/certificates.js'
import { http } from './support/wire/http.js'
import { jwks, signers, svid } from './support/wire/signing.js'

const run = promisify(execFile)

/** A connection as a gateway or an agent makes it. */
async function reach (t: Owner, env: Partial<Record<keyof Environment, string>>): Promise<NatsConnection> {
  const nc = await connectBus(loadConfig(env), 'test')
  atEnd(t, () => nc.close())
  return nc
}

/** What is said of a bus that does not take the connection; it is tried on until the test ends. */
async function whyNot (t: Owner, env: Partial<Record<keyof Environment, string>>): Promise<string> {
  const stop = new AbortController()
  atEnd(t, () => stop.abort())
  return new Promise((resolve, reject) => {
    const log = { debug () {}, info () {}, warn: (details: object) => { resolve((details as { why: string }).why); stop.abort() }, error () {} }
    connectBus(loadConfig(env), 'test', { log, signal: stop.signal }).then((nc) => nc.close().then(() => reject(new Error('it was taken'))), () => {})
  })
}

/** Puts a text in a file's place, as whatever renews credentials does. */
function exchange (file: string, text: string): void {
  writeFileSync(`${file}.new`, text)
  renameSync(`${file}.new`, file)
}

/** Answers what it is asked; rejects where nothing can be asked. */
const echoes = async (nc: NatsConnection): Promise<boolean> => {
  const sub = nc.subscribe('echo', { callback: (_, msg) => { msg.respond(msg.data) } })
  try {
    return (await nc.request('echo', 'x')).string() === 'x'
  } finally { sub.unsubscribe() }
}

t.test('TLS: the bus is who its authority says, nothing goes in clear, and both certificates are exchanged while it runs', async (t) => {
  const folder = temporaryFolder(t)
  const [ca, cert, key] = ['ca.pem', 'cert.pem', 'key.pem'].map((name) => join(folder, name)) as [string, string, string]
  const serve = (one: Certificate): void => { writeFileSync(cert, one.chain); writeFileSync(key, one.key) }
  const first = authority({ commonName: 'first' })
  writeFileSync(ca, first.cert)
  serve(serverCertificate(first))
  const server = await natsServer(t, { config: `tls { cert_file: "${cert}", key_file: "${key}" }` })
  const url = `tls://localhost:${server.port}`

  const nc = await reach(t, { NATS_URL: url, NATS_CA: ca })
  t.ok(await echoes(nc))
  t.ok(await echoes(await reach(t, { NATS_URL: `tls://127.0.0.1:${server.port}`, NATS_CA: ca })), 'by its address, too')
  t.match(await whyNot(t, { NATS_URL: url }), /self.signed|unable to (verify|get)|local issuer/i, 'an authority that nobody knows')
  const other = join(folder, 'other.pem')
  writeFileSync(other, authority({ commonName: 'other' }).cert)
  t.match(await whyNot(t, { NATS_URL: url, NATS_CA: other }), /self.signed|unable to (verify|get)|local issuer|signature/i, 'another authority')

  // The authority is another, and so is the server's certificate: the file is read again.
  const second = authority({ commonName: 'second' })
  exchange(ca, second.cert)
  serve(serverCertificate(second))
  await server.kill()
  await server.start()
  t.ok(await eventually('the connection is there again', () => echoes(nc).catch(() => false), 10_000))

  serve(certificate({ dns: ['elsewhere.example'] }, second))
  await server.reload()
  t.match(await whyNot(t, { NATS_URL: url, NATS_CA: ca }), /altnames|does not match/i, 'a certificate for another name')

  const plain = await natsServer(t)
  for (const env of [{ NATS_URL: `tls://localhost:${plain.port}` }, { NATS_URL: plain.url, NATS_CA: ca }]) {
    t.match(await whyNot(t, env), /tls/i, `${JSON.stringify(Object.keys(env))}: no talk with whoever has no TLS`)
  }
  await nc.close()
})

t.test('a user\'s inboxes bear its key, and a file that holds no user is said to', async (t) => {
  const users = new Users(t)
  const server = await natsServer(t, { config: users.conf() })
  const { key, seed, seedFile } = users.of('gateway')
  const nc = await reach(t, { NATS_URL: server.url, NATS_NKEY_SEED_FILE: seedFile })
  t.ok(newInbox(nc).startsWith(`_INBOX.${key}.`))
  await nc.close()
  const open = await natsServer(t)
  const anybody = await reach(t, { NATS_URL: open.url })
  t.match(newInbox(anybody), /^_INBOX\.[\w-]{22}$/)
  await anybody.close()

  const folder = temporaryFolder(t)
  const [file, jwksFile] = [join(folder, 'file'), join(folder, 'jwks.json')]
  writeFileSync(jwksFile, JSON.stringify(jwks(signers())))
  const wrong: Array<[string, string]> = [['', 'nothing'], [seed.slice(0, -4), 'cut off'], [key, 'a public key'], ['SAAO5WD3VMSIPWXRMNVA2QRUVXVDGFMNHPPIXEYC2J5QCV5MPLLOHPKYLU', 'an account']]
  for (const [text, what] of wrong) {
    writeFileSync(file, text)
    t.throws(() => busUser({ NATS_NKEY_SEED_FILE: file }), { name: 'ConfigError', message: /^NATS_NKEY_SEED_FILE is ".*", but that file holds no user's seed: expected/ }, what)
    t.throws(() => busUser({ NATS_CREDS: file }), { name: 'ConfigError', message: /^NATS_CREDS is ".*", but that file holds no user's JWT: expected/ }, what)
  }
  // A process ends at once, with that one line.
  for (const command of ['serve', 'provisioner']) {
    const env = { ...process.env, NATS_URL: open.url, NATS_NKEY_SEED_FILE: file, MESH_NODE: 'node-a', AUTH_JWKS: jwksFile }
    const { code, stderr } = await run(process.execPath, ['dist/src/cli.js', command], { cwd: projectRoot, env }).then(() => ({ code: 0, stderr: '' }), (error) => error)
    t.equal(code, 1)
    t.match(stderr, /^mesh-gateway: NATS_NKEY_SEED_FILE is "[^\n]*, but that file holds no user's seed[^\n]*\n$/, command)
  }
  writeFileSync(file, seed)
  const user = busUser({ NATS_NKEY_SEED_FILE: file })
  writeFileSync(file, '')
  t.ok(user.authenticator?.('nonce'), 'a file that is just being written: what it held before')
  t.equal(user.shown(), key)
})

t.test('an nkey is exchanged for another user\'s: gateway and provisioner go on as that user', async (t) => {
  const users = new Users(t)
  const server = await natsServer(t, { config: users.conf() })
  const root = await users.connect(t, server.url, 'root')
  const buckets = await mesh(root)
  await buckets.node('node-a')
  await buckets.ready('app')
  await buckets.holder('broker', 'node-a')
  const folder = temporaryFolder(t)
  const seedOf = (name: string, text: string): string => {
    const file = join(folder, name)
    exchange(file, text)
    return file
  }
  const [gatewaySeed, nodeSeed] = [seedOf('gateway.nk', users.of('take-in').seed), seedOf('node.nk', users.of('provisioner').seed)]
  const { PATH, HOME } = process.env
  const node = start(t, process.execPath, ['dist/src/cli.js', 'provisioner'], {
    cwd: projectRoot, stdio: ['ignore', 'ignore', 'inherit'], env: { PATH, HOME, LOG_LEVEL: 'fatal', NATS_URL: server.url, NATS_NKEY_SEED_FILE: nodeSeed, MESH_NODE: 'node-a' }
  })
  const gateway = await startGateway(t, { natsUrl: server.url, ready: true, env: { NATS_NKEY_SEED_FILE: gatewaySeed } })
  const [token, operator] = [svid(gateway.keys.ed, 'module/app'), svid(gateway.keys.ed, 'operator/alice')]
  const takeIn = () => http(gateway.port, 'POST', '/modules/app/take-in', { token: operator, wait: 20_000 })
  const value = async () => (await http(gateway.port, 'GET', '/provision/config/port', { token, headers: { 'cache-control': 'no-cache' } })).body
  t.match(await takeIn(), { status: 200, json: { outcome: 'taken-in' } })
  await eventually('the value', async () => await value() === '8080')

  // Their users are gone; what were an indexer's and a builder's are theirs now.
  exchange(gatewaySeed, users.of('indexer').seed)
  exchange(nodeSeed, users.of('builder').seed)
  server.configure(users.conf({ indexer: 'take-in', builder: 'provisioner' }, ['take-in', 'provisioner']))
  await server.reload()
  await eventually('the gateway connects anew', () => gateway.logged(/another user's: connecting anew/).length > 0, 10_000)
  await buckets.put('settings', 'app', { port: 9 })
  const answer = await eventually('a take-in as the other user', async () => {
    const one = await takeIn()
    return one.status === 200 && one
  }, 20_000)
  t.match(answer, { json: { outcome: 'composed' } })
  t.ok(await eventually('the value as the other user says it', async () => await value() === '9', 15_000))
  t.equal(node.exitCode, null)
  await root.close()
})

t.test('a credentials file of operator mode: the gateway takes in and serves with the rights in its JWT, and with the next one\'s', async (t) => {
  const mode = new OperatorMode()
  const server = await natsServer(t, { config: mode.conf() })
  const root = await client(t, server.url, { authenticator: credsAuthenticator(encode(mode.creds().text)) })
  const buckets = await mesh(root)
  await buckets.node('node-a')
  await buckets.ready('app')
  await buckets.holder('broker', 'node-a')

  const file = join(temporaryFolder(t), 'gateway.creds')
  const made = () => mode.creds((user) => rightsOf('take-in', { user, prefix: 'mesh_', node: 'node-a' }))
  const first = made()
  exchange(file, first.text)
  const gateway = await startGateway(t, { natsUrl: server.url, ready: true, env: { NATS_CREDS: file } })
  const operator = svid(gateway.keys.ed, 'operator/alice')
  const takeIn = () => http(gateway.port, 'POST', '/modules/app/take-in', { token: operator, wait: 20_000 })
  t.match(await takeIn(), { status: 200, json: { outcome: 'taken-in' } })
  t.ok(await buckets.get('grants', `app.${fp('a')}`))
  const nc = await reach(t, { NATS_URL: server.url, NATS_CREDS: file })
  t.ok(newInbox(nc).startsWith(`_INBOX.${first.user}.`))
  t.notMatch(server.log, /violation/i)
  nc.publish('$KV.mesh_trunk.app', '{}')
  await eventually('the refusal', () => /Publish Violation.*KV\.mesh_trunk/.test(server.log))

  const closed = nc.closed()
  exchange(file, made().text)
  await server.kill()
  await server.start()
  t.equal(await within(closed.then(() => 'closed'), 10_000), 'closed', 'whoever holds it connects anew')
  t.ok(await eventually('a take-in as the next user', async () => (await takeIn()).status === 200, 20_000))
  await root.close()
})
