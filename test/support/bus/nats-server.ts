/** A real nats-server with JetStream, which can be killed, frozen, reloaded and started again on what it stored. */
import type { ChildProcess } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { findNatsServer, howToGetNatsServer } from '../../../src/dev/nats-binary.js'
import { end, freePort, HOST, start, temporaryFolder } from '../machine.js'
import type { Owner } from '../owner.js'
import { eventually } from '../until.js'

function binary (): string {
  const found = findNatsServer()
  if (found === undefined) throw new Error(`nats-server was not found: ${howToGetNatsServer}`)
  return found
}

export class NatsServer {
  /** The server's own log since the test began, its end at least. */
  log = ''
  #child: ChildProcess | undefined
  readonly #t: Owner
  readonly #configuration: string
  readonly #store: string

  constructor (t: Owner, readonly port: number, folder: string) {
    this.#t = t
    this.#configuration = join(folder, 'server.conf')
    this.#store = join(folder, 'jetstream')
  }

  get url (): string { return `nats://${HOST}:${this.port}` }

  /** Writes the configuration; `more` is its text besides the address and the store (users, say). Counts from start or reload. */
  configure (more = ''): void {
    writeFileSync(this.#configuration, `listen: "${HOST}:${this.port}"\njetstream { store_dir: "${this.#store}" }\n${more}\n`)
  }

  /** Starts on the same port and store as before. */
  async start (): Promise<this> {
    const child = start(this.#t, binary(), ['-c', this.#configuration], { stdio: ['ignore', 'ignore', 'pipe'] })
    this.#child = child
    let said = ''
    let failed: Error | undefined
    child.stderr?.on('data', (data: Buffer) => {
      said += data.toString()
      this.log = (this.log + data.toString()).slice(-50_000)
    })
    child.once('error', (error) => { failed = error })
    await eventually('nats-server is ready', () => {
      if (failed) throw failed
      if (child.exitCode !== null) throw new Error(`nats-server ended: ${said.slice(-500)}`)
      return said.includes('Server is ready')
    }, 10_000)
    return this
  }

  /** Ends it, at once unless told otherwise; resolves when it is gone. */
  async kill (signal: NodeJS.Signals = 'SIGKILL'): Promise<void> { if (this.#child) await end(this.#child, signal) }

  /** Stops it where it stands: its connections stay open and nothing is answered. */
  freeze (): void {
    const pid = this.#child?.pid
    this.#child?.kill('SIGSTOP')
    // A signal takes effect a moment later; on Linux it can be seen.
    for (let looks = 0; looks < 10_000 && existsSync(`/proc/${pid}/stat`) && !/\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')); looks++);
  }

  thaw (): void { this.#child?.kill('SIGCONT') }

  /** Has it read its configuration again; throws with the server's reason where it refuses. */
  async reload (): Promise<void> {
    const from = this.log.length
    this.#child?.kill('SIGHUP')
    const line = await eventually('nats-server has read its configuration', () =>
      this.log.slice(from).split('\n').find((one) => /Reloaded server configuration|Failed to reload/.test(one)))
    if (line.includes('Failed')) throw new Error(line)
  }
}

/** A nats-server on a free port with a store of its own, running. */
export async function natsServer (t: Owner, { config = '', port }: { config?: string, port?: number } = {}): Promise<NatsServer> {
  const server = new NatsServer(t, port ?? await freePort(), temporaryFolder(t, 'nats'))
  server.configure(config)
  return server.start()
}
