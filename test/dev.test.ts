import t from 'tap'
import { execFile, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { nkeyAuthenticator } from 'nats'
import { createUser, fromSeed } from 'nkeys.js'
import { main } from '../src/commands/main.js'
import { confUser } from '../src/agents/user-list.js'
import { EnvironmentSchema, loadConfig } from '../src/config.js'
import { writeBusFiles } from '../src/dev/bus-server.js'
import { giveUsers } from '../src/dev/bus-users.js'
import { prepare } from '../src/dev/dev.js'
import { readable } from '../src/dev/log-lines.js'
import { findNatsServer } from '../src/dev/nats-binary.js'
import { provisionerSeedFile, seedFile } from '../src/dev/seeds.js'
import { welcome } from '../src/dev/welcome.js'
import { rightsOf, type Role } from '../src/nats/rights.js'
import { client } from './support/bus/client.js'
import { assertBuilt } from './support/gateway.js'
import { end, freePort, HOST, projectRoot, start, temporaryFolder } from './support/machine.js'
import { atEnd, type Owner } from './support/owner.js'
import { eventually, until } from './support/until.js'
import { http } from './support/wire/http.js'

assertBuilt()
const program = join(projectRoot, 'dist/src/cli.js')
const surroundings = Object.fromEntries(Object.entries(process.env).filter(([name]) => !Object.hasOwn(EnvironmentSchema.properties, name)))
const run = promisify(execFile)

/** Runs a command to its end. */
async function cli (args: string[], env: NodeJS.ProcessEnv = {}): Promise<{ code: number, stdout: string, stderr: string }> {
  try {
    return { code: 0, ...await run(process.execPath, [program, ...args], { env: { ...surroundings, ...env }, timeout: 60_000 }) }
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number, stdout: string, stderr: string }
    return { code, stdout, stderr }
  }
}

/** Understands and runs a command line in this process; answers the error. */
async function failing (args: string[], env: NodeJS.ProcessEnv): Promise<Error | undefined> {
  const before = process.env
  process.env = { ...surroundings, ...env }
  try {
    return await main(args).then(() => undefined, (error: Error) => error)
  } finally {
    process.env = before
  }
}

t.test('the command line: help, version, and one line with exit code 2 or 1 for what is wrong', async (t) => {
  const { version } = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as { version: string }
  t.same(await cli(['--version']), { code: 0, stdout: `${version}\n`, stderr: '' })
  const help = await cli(['--help'])
  for (const command of ['dev', 'serve', 'provisioner', 'broker', 'token', 'apply', 'credential', 'rights']) t.match(help.stdout, `  ${command} `)
  t.match(await cli(['token', '--help']), { code: 0, stdout: /--ttl/ })
  t.same(await cli(['token', '--frobnicate']), { code: 2, stdout: '', stderr: "mesh-gateway: token: Unknown option '--frobnicate'\n" })
  t.match(await cli(['provisioner'], { MESH_NODE: '' }), { code: 1, stdout: '', stderr: /^mesh-gateway: MESH_NODE is not set[^\n]*\n$/ })

  const nowhere = { DATA_DIR: join(temporaryFolder(t), 'none'), NATS_PORT: String(await freePort()) }
  // The data folder of a dev that does not run.
  const stopped = { ...nowhere, DATA_DIR: temporaryFolder(t, 'dev') }
  writeFileSync(seedFile(stopped.DATA_DIR, 'operator'), createUser().getSeed())
  const usage: Array<[string[], RegExp]> = [
    [['frobnicate'], /^"frobnicate" is no command: expected dev, serve/],
    [['--frobnicate'], /^"--frobnicate" is no option/],
    [['token', 'billing'], /^token does not take "billing"/],
    [['token'], /^token needs one of --module NAME, --operator NAME and --reader NAME/],
    [['token', '--module', 'a', '--operator', 'b'], /^token needs one of/],
    [['token', '--module'], /^token: Option '--module <value>' argument missing/],
    [['token', '--module', 'Not A Name'], /^token: --module is "Not A Name", but it takes/],
    [['token', '--module', 'a', '--ttl', 'soon'], /^token: --ttl is "soon", but it takes a number and s, m, h or d/],
    [['apply'], /^apply needs FILE/],
    [['credential', 'Not A Name'], /^credential: "Not A Name" is no module's name/]
  ]
  for (const [args, message] of usage) t.match(await failing(args, {}), { name: 'UsageError', message }, args.join(' '))
  const wrong: Array<[string[], NodeJS.ProcessEnv, RegExp]> = [
    [['apply', 'none.yaml'], {}, /^none\.yaml cannot be read \(ENOENT\)/],
    [['apply', 'examples/mesh.yaml'], nowhere, /^NATS_URL is not set, and there is no .*operator\.nk: start "mesh-gateway dev" first/],
    [['apply', 'examples/mesh.yaml'], { NATS_URL: `nats://${HOST}:${nowhere.NATS_PORT}` }, /^the bus at nats:\S+ does not take the connection \(CONNECTION_REFUSED\): see that it runs, and that NATS_URL names it$/],
    ...[['apply', 'examples/mesh.yaml'], ['credential', 'billing']].map((args): [string[], NodeJS.ProcessEnv, RegExp] =>
      [args, stopped, /^the bus at nats:\S+ does not take the connection \(CONNECTION_REFUSED\): see that "mesh-gateway dev" runs; .* say it in NATS_PORT, .* NATS_URL$/]),
    [['broker'], nowhere, /^BROKER_SERVER is not set/],
    [['serve'], nowhere, /^NATS_URL is not set/]
  ]
  for (const [args, env, message] of wrong) t.match(await failing(args, env), { message }, args.join(' '))
  const dev = [
    [{ NATS_URL: 'nats://127.0.0.1:4222' }, /^NATS_URL is set, but dev starts a bus of its own/],
    [{ NATS_SERVER_BIN: '/nowhere/nats-server' }, /^nats-server was not found/]
  ] as const
  for (const [env, message] of dev) await t.rejects(prepare(loadConfig(env), env), { name: 'ConfigError', message })
  t.throws(() => loadConfig({ PORT: 'x' }), { name: 'ConfigError', message: /^PORT is "x", but it takes a whole number/ })
})

t.test('a token is printed alone, for whom and for how long it was asked', async (t) => {
  const env = { DATA_DIR: join(temporaryFolder(t), 'data'), AUTH_ISSUER: 'https://issuer.example', TRUST_DOMAIN: 'example.org', AUTH_AUDIENCE: 'me' }
  const payload = async (...args: string[]) => {
    const { stdout } = await cli(['token', ...args], env)
    t.match(stdout, /^[\w-]+\.[\w-]+\.[\w-]+\n$/)
    return JSON.parse(Buffer.from(stdout.split('.')[1] ?? '', 'base64url').toString()) as { iat: number, exp: number, jti: string }
  }
  const one = await payload('--module', 'billing')
  t.match(one, { sub: 'spiffe://example.org/module/billing', aud: 'me', iss: 'https://issuer.example', jti: /.+/ })
  t.equal(one.exp - one.iat, 3600)
  const other = await payload('--operator', 'alice', '--ttl', '60s')
  t.match(other, { sub: 'spiffe://example.org/operator/alice' })
  t.equal(other.exp - other.iat, 60)
  t.match(await payload('--reader', 'grafana', '--ttl', '10m'), { sub: 'spiffe://example.org/reader/grafana' })
  t.equal(statSync(join(env.DATA_DIR, 'signing-key.json')).mode & 0o777, 0o600)
  const { keys } = JSON.parse(readFileSync(join(env.DATA_DIR, 'jwks.json'), 'utf8')) as { keys: object[] }
  t.match(keys, [{ kty: 'OKP', crv: 'Ed25519', kid: /.+/ }])
  t.notOk('d' in (keys[0] ?? {}), 'the published half alone')
})

t.test('what dev says: log lines as one reads them, and lines that can be pasted', async (t) => {
  t.equal(readable('{"level":30,"time":1,"pid":2,"part":"broker","msg":"answering"}'), 'answering')
  t.equal(readable('{"level":50,"why":"no way","n":1,"msg":"failed"}'), 'ERROR failed why="no way" n=1')
  for (const line of ['plain', '{"a":1}', '{half']) t.equal(readable(line), line)
  const config = { TRUST_DOMAIN: 'mesh.local', AUTH_AUDIENCE: 'mesh-gateway' } as never
  const tried = { config, url: 'http://127.0.0.1:8080', node: 'node-a', busPort: 4222, dataDir: join(process.cwd(), '.data'), value: { module: 'm', key: "it's / é" }, module: 'm' }
  t.match(welcome(tried, true).join('\n'), 'curl -s -H "Authorization: Bearer $(npm run -s token -- --module m)" \'http://127.0.0.1:8080/provision/config/it\'\\\'\'s%20%2F%20%C3%A9\'')
  // The port of the bus is said once; no token depends on it.
  const elsewhere = welcome({ ...tried, busPort: 4333, dataDir: '/some where' }, false).join('\n')
  t.match(elsewhere, /its bus at nats:\/\/127\.0\.0\.1:4333\. Ctrl-C ends it all\./)
  t.match(elsewhere, '$(DATA_DIR=\'/some where\' mesh-gateway token --operator alice)')
  t.notMatch(elsewhere, 'NATS_PORT')
  const secure = welcome({ ...tried, config: { TLS_CERT: 'my cert.pem' } as never, url: 'https://127.0.0.1:8080' }, true).filter((line) => line.includes('curl'))
  t.equal(secure.length, 4)
  for (const line of secure) t.match(line, /^ {2}curl --cacert 'my cert\.pem' -s/)
})

interface Dev { child: ChildProcess, env: { DATA_DIR: string, PORT: string, NATS_PORT: string }, output: string, isReady: boolean, group: number[] }

/** Dev as a terminal starts it: leader of a process group, so that Ctrl-C reaches the whole group. */
async function dev (t: Owner, env: Dev['env'], said = 'take-in\n'): Promise<Dev> {
  const child = start(t, process.execPath, [program, 'dev'], { env: { ...surroundings, ...env }, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const made: Dev = { child, env, output: '', isReady: false, group: [] }
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data: Buffer) => { made.output += data.toString() })
  await eventually('what dev should say', () => {
    if (child.exitCode !== null) throw new Error(`dev ended:\n${made.output}`)
    return made.output.includes(said)
  }, 60_000)
  made.group = treeOf(child.pid ?? 0)
  // One that a failed test leaves behind.
  atEnd(t, () => { for (const pid of made.group) try { process.kill(pid, 'SIGKILL') } catch { /* it is gone, as it should */ } })
  return made
}

/** Parent and command line of every process. */
function processes (): Map<number, { parent: number, line: string }> {
  const found = new Map<number, { parent: number, line: string }>()
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
      found.set(Number(pid), { parent, line: readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ') })
    } catch { /* it ended meanwhile */ }
  }
  return found
}

/** The pids of all that a process started, its children's children too. */
function treeOf (pid: number): number[] {
  const all = processes()
  const below = (of: number): number[] => [...all].filter(([, { parent }]) => parent === of).flatMap(([child]) => [child, ...below(child)])
  return below(pid)
}

/** The one of these whose command line holds a text. */
const find = (pids: number[], text: string): number => {
  const all = processes()
  const pid = pids.find((one) => all.get(one)?.line.includes(text))
  if (pid === undefined) throw new Error(`no process of dev has ${text} in its command line`)
  return pid
}

const lives = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    // One that has ended and was not waited for yet still has its pid.
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch { return false }
}
/** What is left of these after the longest time that a gateway may drain; nothing, as soon as nothing is. */
async function leftOf (pids: number[]): Promise<string[]> {
  await until(() => !pids.some(lives), 20_000, 50)
  const all = processes()
  return pids.filter(lives).map((pid) => all.get(pid)?.line ?? String(pid))
}

async function surroundingsOf (t: Owner): Promise<Dev['env']> {
  return { DATA_DIR: join(temporaryFolder(t, 'dev'), 'data'), PORT: String(await freePort()), NATS_PORT: String(await freePort()) }
}

t.test('dev: all that is printed works, what is started ends, and nothing else does', async (t) => {
  const env = await surroundingsOf(t)
  const first = await dev(t, env)
  t.notMatch(first.output, /the bus does not take the connection/, 'a bus that starts is no news')
  t.ok(first.group.length >= 7, 'bus and its guard, three provisioners, the broker agent, the gateway')
  for (const file of ['signing-key.json', 'operator.nk', 'nodes/node-a.curve', 'nodes/node-c.curve', 'inventory.nk', 'nodes/node-b.provisioner.nk']) {
    t.equal(statSync(join(env.DATA_DIR, file)).mode & 0o777, 0o600, file)
  }
  const lines = first.output.split('\n').filter((line) => line.startsWith('  curl ') && !line.includes('-sN'))
  const answers = []
  for (const line of lines) {
    const { stdout } = await run('sh', ['-c', line.replaceAll('mesh-gateway token', `${process.execPath} ${program} token`)], { cwd: projectRoot, env: surroundings })
    answers.push(JSON.parse(stdout))
  }
  t.match(answers, [9090, { kind: 'config', keys: ['currency', 'port', 'retry'] }, { outcome: /current|composed|taken-in/, module: 'billing' }])

  // Whoever is on the bus has the rights of its role and no others; each provisioner is a user of its own.
  const users = readFileSync(join(env.DATA_DIR, 'bus', 'users.conf'), 'utf8')
  const places: Array<[string, Role, string]> = [
    ['gateway.nk', 'take-in', 'node-a'], ['broker.nk', 'broker', ''], ['builder.nk', 'builder', ''], ['indexer.nk', 'indexer', ''], ['inventory.nk', 'operator', ''],
    ...['node-a', 'node-b', 'node-c'].map((node): [string, Role, string] => [`nodes/${node}.provisioner.nk`, 'provisioner', node])
  ]
  for (const [file, role, node] of places) {
    const user = fromSeed(readFileSync(join(env.DATA_DIR, file)).subarray(0, 58)).getPublicKey()
    t.ok(users.includes(confUser(user, rightsOf(role, { user, prefix: 'mesh_', node, server: 'node-c' }))), file)
  }

  // The module's credential is unsealed, and is on the bus with its permissions.
  const { stdout: seed } = await cli(['credential', 'billing'], env)
  const pair = fromSeed(Buffer.from(seed.trim()))
  const nc = await client(t, `nats://${HOST}:${env.NATS_PORT}`, {
    authenticator: nkeyAuthenticator(Buffer.from(seed.trim())), inboxPrefix: `_INBOX.${pair.getPublicKey()}`, reconnect: false
  })
  t.equal((await nc.request('mesh.provision.node-a.billing.get', '{"kind":"bound","key":"database"}')).string(), '"postgres://node-c.mesh.local:5432/main"')
  await nc.close()
  t.match(await cli(['credential', 'mailer'], env), { code: 1, stdout: '', stderr: /module mailer has no composition on node node-a/ })

  // The description is changed and applied again; the gateway sees it.
  const file = join(env.DATA_DIR, 'mesh.yaml')
  writeFileSync(file, readFileSync(file, 'utf8').replace('port: 9090', 'port: 9191'))
  t.same(await cli(['apply', file], env), { code: 0, stdout: 'wrote settings: billing\n', stderr: '' })
  const token = (await cli(['token', '--module', 'billing'], env)).stdout.trim()
  const value = async () => (await http(Number(env.PORT), 'GET', '/provision/config/port', { headers: { authorization: `Bearer ${token}` } })).body
  await eventually('the new setting is answered', async () => await value() === '9191')

  // Another dev on the same folder or port is told so, before it starts anything.
  t.match(await cli(['dev'], env), { code: 1, stdout: '', stderr: /^mesh-gateway: DATA_DIR is .*, but another dev uses it \(process \d+\)[^\n]*\n$/ })
  const elsewhere = { DATA_DIR: join(temporaryFolder(t), 'data') }
  t.match(await cli(['dev'], { ...env, ...elsewhere }), { code: 1, stdout: '', stderr: new RegExp(`^mesh-gateway: NATS_PORT is ${env.NATS_PORT}, but that port is in use[^\\n]*\\n$`) })
  t.match(await cli(['dev'], { ...env, ...elsewhere, NATS_PORT: String(await freePort()) }), { code: 1, stdout: '', stderr: new RegExp(`^mesh-gateway: PORT is ${env.PORT}, but that port is in use`) })

  // Ctrl-C: SIGINT to the group. The gateway drains while the bus is there.
  const exit = once(first.child, 'exit')
  process.kill(-(first.child.pid ?? 0), 'SIGINT')
  t.same(await exit, [0, null])
  t.same(await leftOf(first.group), [], 'nothing is left behind')
  t.match(first.output, /gateway +\| draining/)
  t.notMatch(first.output.slice(first.output.indexOf('draining')), /the bus is away|ERROR|FATAL/)

  // The second start finds its data. Killed, it can end nothing itself: all that it started ends by itself.
  const second = await dev(t, env)
  t.equal(await value(), '9191')
  t.notMatch(second.output, 'the sample mesh was applied')
  await end(second.child, 'SIGKILL')
  t.same(await leftOf(second.group), [], 'nothing is left behind')
})

t.test('a data folder of an earlier version: its operator and the users of modules stay, the others get the rights of their roles', async (t) => {
  const dataDir = temporaryFolder(t, 'dev')
  const server = { program: findNatsServer() ?? '', port: await freePort(), monitorPort: await freePort() }
  const { broker } = await writeBusFiles(dataDir, server)
  const key = (file: string) => fromSeed(readFileSync(file).subarray(0, 58)).getPublicKey()
  const operator = key(seedFile(dataDir, 'operator'))
  const [provisioner, module] = [createUser().getPublicKey(), createUser()]
  const fixed = `  # operator\n  { nkey: "${operator}" }\n  # provisioner\n  { nkey: "${provisioner}" }\n`
  writeFileSync(broker.BROKER_FIXED_USERS, fixed)
  writeFileSync(broker.BROKER_USERS, `users: [\n${fixed.trim()}\n  { nkey: "${module.getPublicKey()}" }\n]\n`)

  await writeBusFiles(dataDir, server)
  start(t, server.program, ['-c', broker.BROKER_CONFIG], { stdio: 'ignore' })
  const url = `nats://${HOST}:${server.port}`
  const as = (seed: Uint8Array) => client(t, url, { authenticator: nkeyAuthenticator(seed), waitOnFirstConnect: true, reconnect: false })
  const [before, moduleBefore] = [await client(t, url, { authenticator: nkeyAuthenticator(readFileSync(seedFile(dataDir, 'operator')).subarray(0, 58)), waitOnFirstConnect: true }), await as(module.getSeed())]
  await giveUsers(dataDir, broker, { prefix: 'mesh_', node: 'node-a', nodes: ['node-a'], server: 's1' })
  await Promise.all([before.flush(), moduleBefore.flush()])
  const list = readFileSync(broker.BROKER_USERS, 'utf8')
  t.notMatch(list, provisioner)
  for (const one of [operator, module.getPublicKey(), key(provisionerSeedFile(dataDir, 'node-a')), key(seedFile(dataDir, 'gateway'))]) t.match(list, `nkey: "${one}"`)
  await (await as(readFileSync(provisionerSeedFile(dataDir, 'node-a')).subarray(0, 58))).close()

  // The next start finds all as it is; a list that knows another operator is begun anew.
  await writeBusFiles(dataDir, server)
  t.equal(readFileSync(broker.BROKER_USERS, 'utf8'), list)
  rmSync(seedFile(dataDir, 'operator'))
  await writeBusFiles(dataDir, server)
  t.match(readFileSync(broker.BROKER_USERS, 'utf8'), key(seedFile(dataDir, 'operator')))
  t.notMatch(readFileSync(broker.BROKER_USERS, 'utf8'), operator)
  await Promise.all([before.close(), moduleBefore.close()])
})

t.test('dev that is ended while it starts, or whose part fails, leaves nothing behind', async (t) => {
  const env = await surroundingsOf(t)
  const early = await dev(t, env, 'the sample mesh was applied')
  await end(early.child, 'SIGTERM')
  t.equal(early.child.exitCode, 0)
  t.same(await leftOf(early.group), [], 'nothing is left behind')

  // The guard of the bus is a part as any other; but where it is killed it cannot end the bus, so dev does.
  const broken = await dev(t, env)
  process.kill(find(broken.group, 'dev/guard.js'), 'SIGKILL')
  await once(broken.child, 'exit')
  t.equal(broken.child.exitCode, 1)
  t.match(broken.output, /mesh-gateway: bus was ended by SIGKILL; ending the rest\n/)
  t.same(await leftOf(broken.group), [], 'nothing is left behind')
})
