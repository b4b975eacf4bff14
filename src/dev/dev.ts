/** The embedded default: a bus of its own, a sample mesh, and all that serves it, in one process tree (DESIGN section 9). */
import { mkdir } from 'node:fs/promises'
import http, { type IncomingMessage } from 'node:http'
import https from 'node:https'
import { extname, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { setTimeout as pause } from 'node:timers/promises'
import type { NatsConnection } from 'nats'
import { ConfigError, type Environment } from '../config.js'
import { limits } from '../core/limits.js'
import { connectBus, type Log } from '../nats/connection.js'
import { writeBusFiles, type BusServer } from './bus-server.js'
import { giveUsers } from './bus-users.js'
import { lockFolder } from './lock.js'
import { isWorthSaying, readable } from './log-lines.js'
import { findNatsServer, howToGetNatsServer } from './nats-binary.js'
import type { PartOptions } from './part.js'
import { freePort, portOf } from './ports.js'
import { prepareMesh, readableValue } from './sample.js'
import { provisionerSeedFile, seedFile } from './seeds.js'
import { jwksFile, signingKey } from './signing-key.js'
import type { Tree } from './tree.js'
import { welcome } from './welcome.js'

/** Source runs from source and dist from dist. */
const moduleFile = (path: string): string => fileURLToPath(new URL(path + extname(import.meta.url), import.meta.url))

/** All that is known before anything is started. */
interface Ground { config: Environment, dataDir: string, port: number, bus: BusServer, unlock (): Promise<void> }

/** Checks what can be in the way, and makes the keys. Throws ConfigError; nothing has been started then. */
export async function prepare (config: Environment, env: NodeJS.ProcessEnv): Promise<Ground> {
  if (config.NATS_URL !== undefined) throw new ConfigError('NATS_URL is set, but dev starts a bus of its own: unset it, or start the gateway alone with serve')
  const program = findNatsServer(env)
  if (program === undefined) throw new ConfigError(`nats-server was not found: ${howToGetNatsServer}`)
  const dataDir = resolve(config.DATA_DIR)
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  // The lock looks at the other's bus, so it says more than a port in use would.
  const busPort = config.NATS_PORT === 0 ? await freePort() : config.NATS_PORT
  const unlock = await lockFolder(dataDir, busPort)
  try {
    await portOf('NATS_PORT', '127.0.0.1', busPort)
    const port = await portOf('PORT', config.HOST, config.PORT)
    if (config.OPS_PORT) await portOf('OPS_PORT', config.HOST, config.OPS_PORT)
    await signingKey(dataDir)
    const bus = await writeBusFiles(dataDir, { program, port: busPort, monitorPort: await freePort() })
    return { config, dataDir, port, bus, unlock }
  } catch (error) {
    await unlock()
    throw error
  }
}

const column = 'provisioner'.length + 10
/** A line of a part, with the part's name in front. */
const lineOf = (name: string, line: string): string => `${name.padEnd(column)} | ${readable(line)}`

/** Dev's own connection. A bus that has just been started takes a moment: what is in the way is said where it lasts. */
async function reachBus (config: Environment, say: (line: string) => void): Promise<NatsConnection> {
  let line = ''
  let late: NodeJS.Timeout | undefined
  const note = (details: object, msg: string): void => {
    line = JSON.stringify({ level: 40, ...details, msg })
    late ??= setTimeout(() => say(lineOf('dev', line)), limits.devPatienceMs)
  }
  const log: Log = { debug () {}, info () {}, warn: note, error: note }
  try {
    return await connectBus(config, 'dev', { log })
  } finally {
    clearTimeout(late)
  }
}

/** Everything that dev starts, by what it is. */
class Parts {
  constructor (private readonly ground: Ground, private readonly env: NodeJS.ProcessEnv, private readonly say: (line: string) => void) {}

  bus (): PartOptions {
    const { bus: { program, broker } } = this.ground
    return this.#part('bus', moduleFile('./guard'), [program, '-c', broker.BROKER_CONFIG], {}, limits.stopMs + 1000)
  }

  provisioner (node: string): PartOptions {
    return this.#command('provisioner', `provisioner ${node}`, provisionerSeedFile(this.ground.dataDir, node), { MESH_NODE: node })
  }

  broker (server: string): PartOptions {
    return this.#command('broker', 'broker', seedFile(this.ground.dataDir, 'broker'), { ...this.ground.bus.broker, BROKER_SERVER: server })
  }

  gateway (node: string): PartOptions {
    const { config, dataDir, port } = this.ground
    return {
      ...this.#command('serve', 'gateway', seedFile(dataDir, 'gateway'), { MESH_NODE: node, PORT: String(port), AUTH_JWKS: config.AUTH_JWKS ?? jwksFile(dataDir) }),
      endMs: config.DRAIN_MS + limits.stopMs
    }
  }

  #command (command: string, name: string, seed: string, env: NodeJS.ProcessEnv): PartOptions {
    const { dataDir, bus } = this.ground
    const reach = { DATA_DIR: dataDir, NATS_URL: `nats://127.0.0.1:${bus.port}`, NATS_NKEY_SEED_FILE: seed, NATS_CREDS: '', NATS_CA: '' }
    return this.#part(name, moduleFile('../cli'), [command], { ...reach, ...env }, limits.stopMs + 1000)
  }

  #part (name: string, file: string, args: string[], env: NodeJS.ProcessEnv, endMs: number): PartOptions {
    const quiet = !['debug', 'trace'].includes(this.ground.config.LOG_LEVEL)
    const say = (line: string): void => { if (!quiet || isWorthSaying(line)) this.say(lineOf(name, line)) }
    return { name, file, args, env: { ...this.env, ...env }, say, endMs }
  }
}

/** The address that a gateway on this machine is reached at. */
const reached = (host: string, port: number): string => {
  const local = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `${local.includes(':') ? `[${local}]` : local}:${port}`
}

const gatewayUrl = ({ HOST, TLS_CERT }: Environment, port: number): string => `${TLS_CERT === undefined ? 'http' : 'https'}://${reached(HOST, port)}`

/** Whether a gateway of this machine says that it is ready. Who it is was seen when it was started: its certificate may be for other names. */
const isReady = async (url: string): Promise<boolean> => await new Promise((resolve) => {
  const signal = AbortSignal.timeout(limits.connectMs)
  const answered = (answer: IncomingMessage): void => { resolve(answer.resume().statusCode === 200) }
  const asked = url.startsWith('https:')
    ? https.get(`${url}/readyz`, { signal, rejectUnauthorized: false }, answered)
    : http.get(`${url}/readyz`, { signal }, answered)
  asked.on('error', () => resolve(false))
})

async function untilReady (url: string): Promise<void> {
  for (;;) {
    if (await isReady(url)) return
    await pause(limits.devPollMs)
  }
}

/**
 * Starts it all, in the order in which one needs the other, and says what can be tried. What it starts is in the tree, for
 * the caller to end; rejects with the reason where a part does not get ready.
 */
export async function startDev (ground: Ground, tree: Tree, env: NodeJS.ProcessEnv, say: (line: string) => void): Promise<void> {
  const { config, dataDir, port, bus } = ground
  const parts = new Parts(ground, env, say)
  const [server] = tree.start(parts.bus())
  tree.guards(await server?.ready)
  const nc = await reachBus({ ...config, NATS_URL: `nats://127.0.0.1:${bus.port}`, NATS_NKEY_SEED_FILE: seedFile(dataDir, 'operator') }, say)
  try {
    const { nodes, server, fresh } = await prepareMesh(nc, config, dataDir)
    if (fresh) say(`the sample mesh was applied; it is kept in ${dataDir}/mesh.yaml`)
    const node = config.MESH_NODE ?? nodes[0]
    if (node === undefined || !nodes.includes(node)) {
      throw new ConfigError(`MESH_NODE is ${node ?? 'not set'}, but the nodes of this mesh are ${nodes.join(', ') || 'none'}`)
    }
    await giveUsers(dataDir, bus.broker, { prefix: config.MESH_PREFIX, node, nodes, server })
    const agents = tree.start(...nodes.map((one) => parts.provisioner(one)), parts.broker(server))
    await Promise.all(agents.map(({ ready }) => ready))
    tree.start(parts.gateway(node))
    await untilReady(config.OPS_PORT === undefined ? gatewayUrl(config, port) : `http://${reached(config.HOST, config.OPS_PORT)}`)
    await sayWelcome(ground, nc, node, say)
  } finally {
    await nc.close()
  }
}

async function sayWelcome ({ config, dataDir, port, bus }: Ground, nc: NatsConnection, node: string, say: (line: string) => void): Promise<void> {
  const value = await readableValue(nc, config.MESH_PREFIX, node)
  const url = gatewayUrl(config, port)
  for (const line of welcome({ config, url, node, busPort: bus.port, dataDir, value, module: value?.module })) say(line)
}
