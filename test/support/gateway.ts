/** The gateway as a process of its own, as it runs in production: `node dist/src/cli.js serve`. */
import { once } from 'node:events'
import type { ChildProcess } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { ConnectionOptions } from 'node:tls'
import { EnvironmentSchema } from '../../src/config.js'
import { end, freePort, hasEnded, HOST, projectRoot, start, temporaryFolder } from './machine.js'
import { atEnd, type Owner } from './owner.js'
import { until, within } from './until.js'
import { parsed } from './wire/bytes.js'
import { isTls } from './wire/dial.js'
import { http } from './wire/http.js'
import { jwks, signers, type Signers } from './wire/signing.js'
import { isGateway } from './wire/spec.js'

const program = 'dist/src/cli.js'

/** The origin of a dashboard that may call. */
export const DASH = 'https://dash.example'

/** A line of the log, parsed; a line that is no JSON stands under `text`. */
export interface LogLine { level?: number, msg?: string, text?: string, [member: string]: unknown }

/** The tests run what was built: throws, saying what to do, where nothing was. */
export function assertBuilt (): void {
  if (existsSync(join(projectRoot, program))) return
  throw new Error(`${program} is missing: run npm test, which builds, or npm run build before a single test`)
}

// A developer's own NATS_URL or AUTH_JWKS is not the tests' concern.
const surroundings = (): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !Object.hasOwn(EnvironmentSchema.properties, name)))

export class Gateway {
  readonly log: LogLine[] = []
  stderr = ''
  #asked = false

  constructor (readonly process: ChildProcess, readonly port: number, readonly opsPort: number, readonly keys: Signers) {
    process.stderr?.on('data', (data: Buffer) => { this.stderr += data.toString() })
    if (process.stdout) createInterface({ input: process.stdout }).on('line', (line) => this.log.push(parsed(line) ?? { text: line }))
  }

  get url (): string { return `http://${HOST}:${this.port}` }
  get ended (): boolean { return hasEnded(this.process) }

  /** The log's lines whose text, members included, a pattern finds. */
  logged (pattern: RegExp): LogLine[] { return this.log.filter((line) => pattern.test(JSON.stringify(line))) }

  /** The last of what it said, for an error. */
  get lastWords (): string { return [...this.log.slice(-5).map((line) => JSON.stringify(line)), this.stderr.slice(-1000)].join('\n').trim() }

  /** Waits until /readyz is 200; throws where it does not become so. */
  async ready (ms = 20_000): Promise<this> {
    await this.#answers('/readyz', ms)
    return this
  }

  async listening (ms = 30_000): Promise<this> {
    await this.#answers('/livez', ms)
    return this
  }

  async #answers (path: string, ms: number): Promise<void> {
    let last = 'no answer'
    const there = await until(async () => {
      if (this.ended) throw new Error(`the gateway ended before ${path} was 200:\n${this.lastWords}`)
      const answer = await http(this.opsPort, 'GET', path, { wait: 1000 })
      last = `${answer.status} ${answer.body.slice(0, 300)}`
      return answer.status === 200
    }, ms)
    if (!there) throw new Error(`${path} of the gateway was not 200 within ${ms} ms (${last}):\n${this.lastWords}`)
  }

  /** Asks it to end (SIGTERM) and waits; throws unless it drains and exits 0 within `ms`. */
  async stop (ms = 15_000): Promise<void> {
    if (this.ended) return
    this.#asked = true
    const exit = once(this.process, 'exit')
    this.process.kill('SIGTERM')
    const [code, signal] = await within(exit, ms) ?? ['none', 'none']
    if (code !== 0) throw new Error(`the gateway ended with code ${code} and signal ${signal} after SIGTERM, not with 0 within ${ms} ms:\n${this.lastWords}`)
  }

  /** Ends it at once, as a crash does. */
  async kill (signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    this.#asked = true
    await end(this.process, signal)
  }

  /** Throws where it ended though nobody asked, or an error went past every handler. */
  assertSound (): void {
    if (this.ended && !this.#asked) throw new Error(`the gateway ended by itself (code ${this.process.exitCode}, signal ${this.process.signalCode}):\n${this.lastWords}`)
    const stray = /unhandled ?(promise)? ?rejection|uncaught ?exception/i
    const [line] = this.logged(stray)
    if (line || stray.test(this.stderr)) throw new Error(`an error went past every handler of the gateway: ${line ? JSON.stringify(line) : this.stderr.slice(-2000)}`)
  }
}

export interface GatewayOptions {
  natsUrl: string
  /** Further variables of DESIGN section 9, over those of the tests. */
  env?: Record<string, string>
  /** Whose tokens it takes; made new where none are given. */
  keys?: Signers
  port?: number
  /** What a client of its port needs where TLS_CERT is set. */
  tls?: ConnectionOptions
  /** Whether to wait for /readyz, too. */
  ready?: boolean
}

/**
 * Starts a gateway for node-a and waits until it listens. At the end of the test it is asked to stop, if it still runs, and
 * the test fails where it did not stop cleanly, ended by itself, or let an error go past every handler.
 */
export async function startGateway (t: Owner, { natsUrl, env = {}, keys = signers(), port, tls, ready = false }: GatewayOptions): Promise<Gateway> {
  assertBuilt()
  const keyFile = join(temporaryFolder(t, 'keys'), 'jwks.json')
  writeFileSync(keyFile, JSON.stringify(jwks(keys)))
  const listenOn = port ?? await freePort()
  if (tls) isTls(listenOn, tls)
  const variables = {
    HOST,
    PORT: String(listenOn),
    NATS_URL: natsUrl,
    MESH_NODE: 'node-a',
    AUTH_JWKS: keyFile,
    CORS_ORIGINS: DASH,
    TAKE_IN: 'manual',
    // A tenth of it passes at the end of each test.
    DRAIN_MS: '5000',
    ...env
  }
  const child = start(t, process.execPath, [program, 'serve'], {
    cwd: projectRoot, env: { ...surroundings(), ...variables }, stdio: ['ignore', 'pipe', 'pipe']
  })
  const gateway = new Gateway(child, listenOn, env.OPS_PORT === undefined ? listenOn : Number(env.OPS_PORT), keys)
  for (const each of [gateway.port, gateway.opsPort]) isGateway(each, { split: gateway.port !== gateway.opsPort })
  atEnd(t, async () => {
    gateway.assertSound()
    await gateway.stop()
    gateway.assertSound()
  })
  await gateway.listening()
  return ready ? gateway.ready() : gateway
}
