/** What a run plays on: a nats-server, a provisioner that answers at once, and gateways, each as a process of its own. */
import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { loadConfig } from '../src/config.js'
import { findNatsServer, howToGetNatsServer } from '../src/dev/nats-binary.js'
import { freePort } from '../src/dev/ports.js'
import { jwksFile, mintToken, type Subject } from '../src/dev/signing-key.js'
import type { ProvisionerCommands } from './actors/provisioner.js'
import { Actor, end, run } from './child.js'

export const node = 'node-a'
const program = join(import.meta.dirname, '../src/cli.js')

/** What every value is in the figures of GETs and fan-outs: 100 bytes of JSON, an object of four texts. */
export const value = { host: 'db-1.mesh.local', database: 'billing', user: 'billing-writer', options: 'pool=10 timeout=2500ms' }

export class Gateway {
  constructor (readonly process: ChildProcess, readonly port: number) {}
  get pid (): number { return this.process.pid as number }
  async stop (): Promise<void> { await end(this.process) }
}

export interface StageOptions {
  /** Fewer and shorter rounds: whether it all works, not figures. */
  quick: boolean
  /** A folder for CPU profiles of the gateways. */
  profiles?: string
  say (line: string): void
}

export class Stage {
  /** For whatever a run keeps; gone after it. */
  readonly folder = mkdtempSync(join(tmpdir(), 'mesh-gateway-bench-'))
  readonly #config = loadConfig({ DATA_DIR: this.folder })
  natsPort = 0
  websocketPort = 0
  provisioner!: Actor<ProvisionerCommands>
  #nats: ChildProcess | undefined

  private constructor (readonly options: StageOptions) {
    process.on('exit', () => rmSync(this.folder, { recursive: true, force: true }))
  }

  static async set (options: StageOptions): Promise<Stage> {
    const stage = new Stage(options)
    await stage.#startNats()
    stage.provisioner = await Actor.start<ProvisionerCommands>('provisioner')
    await stage.provisioner.call('connect', { url: stage.url, node })
    return stage
  }

  get quick (): boolean { return this.options.quick }
  get url (): string { return `nats://127.0.0.1:${this.natsPort}` }

  /** Resolves once the server takes connections. */
  async #startNats (): Promise<void> {
    const program = findNatsServer()
    if (program === undefined) throw new Error(`nats-server was not found: ${howToGetNatsServer}`)
    this.natsPort = await freePort()
    this.websocketPort = await freePort()
    const configuration = join(this.folder, 'nats.conf')
    writeFileSync(configuration, `listen: "127.0.0.1:${this.natsPort}"
logfile: ${JSON.stringify(join(this.folder, 'nats.log'))}
jetstream { store_dir: ${JSON.stringify(join(this.folder, 'jetstream'))} }
websocket { listen: "127.0.0.1:${this.websocketPort}", no_tls: true, compression: false }
`)
    this.#nats = run(program, ['-c', configuration])
    const { connect } = await import('nats')
    const nc = await connect({ servers: this.url, waitOnFirstConnect: true, reconnectTimeWait: 50 })
    await nc.close()
  }

  /**
   * Starts a gateway and waits until it is ready. Its log is at `warn`: one line a request would be measured with it. With
   * `collects` it can be told to collect its garbage.
   */
  async gateway (env: Record<string, string> = {}, { collects = false } = {}): Promise<Gateway> {
    await this.token({ role: 'module', name: 'any' }) // makes the keys where there are none
    const port = await freePort()
    const { profiles } = this.options
    const profiling = profiles === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profiles}`]
    const collecting = collects ? ['--expose-gc', `--import=${pathToFileURL(join(import.meta.dirname, 'collect.js')).href}`] : []
    const child = run(process.execPath, [...profiling, ...collecting, program, 'serve'], {
      NODE_ENV: 'production',
      PORT: String(port),
      NATS_URL: this.url,
      MESH_NODE: node,
      AUTH_JWKS: jwksFile(this.folder),
      TAKE_IN: 'manual',
      LOG_LEVEL: 'warn',
      MAX_CONNECTIONS_PER_MODULE: '100000',
      ...env
    })
    for (let tries = 0; tries < 200; tries++) {
      if (child.exitCode !== null) throw new Error('the gateway ended before it was ready')
      const ready = await fetch(`http://127.0.0.1:${port}/readyz`).then(({ ok }) => ok, () => false)
      if (ready) return new Gateway(child, port)
      await pause(50)
    }
    throw new Error('the gateway was not ready within 10 s')
  }

  token (subject: Subject): Promise<string> { return mintToken(this.#config, subject, 24 * 3600) }

  async strike (): Promise<void> {
    await this.provisioner.end()
    if (this.#nats) await end(this.#nats)
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** The bytes of a GET. */
export function getRequest (path: string, headers: Record<string, string> = {}): string {
  const all = { Host: 'bench.mesh.local', Accept: 'application/json', ...headers }
  return `GET ${path} HTTP/1.1\r\n${Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`
}
