/** The gateway's hold on the bus: a connection that may not be there yet, and word of each time it comes and goes. */
import { Events, type NatsConnection, type Status } from 'nats'
import type { Environment } from '../config.js'
import { limits } from '../core/limits.js'
import { connectBus, type Log } from './connection.js'
import { busUser } from './user.js'

export interface BusListener {
  /** The bus is there. `connection` differs from the one before only where the client had closed for good. */
  up (connection: NatsConnection): void
  down (): void
}

export class Bus {
  /** The connection while it is up; undefined while the bus is away. */
  connection: NatsConnection | undefined
  readonly #listeners = new Set<BusListener>()
  readonly #stopping = new AbortController()
  #client: NatsConnection | undefined
  readonly #said = new Set<string>()

  /** Throws a ConfigError where a file of credentials holds none: at the start that is a mistake, and later one that may be mended. */
  constructor (private readonly config: Environment, private readonly name: string, private readonly log: Log) {
    busUser(config)
  }

  listen (listener: BusListener): void {
    this.#listeners.add(listener)
    if (this.connection) listener.up(this.connection)
  }

  start (): void { void this.#run() }

  async stop (): Promise<void> {
    this.#stopping.abort()
    await this.#client?.close()
  }

  async #run (): Promise<void> {
    // A client that closed for good (it should not, but nothing works without it) is replaced by a new one.
    while (!this.#stopping.signal.aborted) {
      try {
        this.#client = await connectBus(this.config, this.name, { log: this.log, signal: this.#stopping.signal })
      } catch { return }
      if (this.#stopping.signal.aborted) return this.#client.close()
      this.#up(this.#client)
      void this.#hear(this.#client)
      // The library's status goes silent where a client closes for good, and does not end.
      await this.#client.closed()
      this.#down()
    }
  }

  async #hear (client: NatsConnection): Promise<void> {
    for await (const status of client.status()) {
      if (client !== this.#client) return
      if (status.type === Events.Disconnect) this.#down()
      else if (status.type === Events.Reconnect) this.#up(client)
      else if (status.type === Events.Error) this.#refused(status)
    }
  }

  /** What one user may not do he tries again and again: it is said once a connection. */
  #refused ({ data, permissionContext: of }: Status): void {
    // Behind the first tokens are names that differ from try to try.
    const what = of && `${of.operation} ${of.subject.split('.').slice(0, limits.saidTokens).join('.')}`
    const why = what === undefined ? String(data) : `the bus does not allow: ${what}`
    if (this.#said.has(why) || this.#said.size >= limits.saidRefusals) return
    this.#said.add(why)
    this.log.warn({ why }, 'the bus reported an error')
  }

  #up (client: NatsConnection): void {
    if (this.connection || client.isClosed()) return
    this.#said.clear()
    this.connection = client
    this.log.info({ server: client.getServer() }, 'the bus is there')
    for (const listener of this.#listeners) listener.up(client)
  }

  #down (): void {
    if (!this.connection) return
    this.connection = undefined
    if (!this.#stopping.signal.aborted) this.log.warn({}, 'the bus is away')
    for (const listener of this.#listeners) listener.down()
  }
}
