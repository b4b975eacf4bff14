/** All live connections of this gateway, whatever their transport: how many a module has, their beat, their orderly end. */
import { setTimeout as pause } from 'node:timers/promises'
import { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { Identity } from '../identity/identity.js'
import type { Principal } from '../identity/principal.js'
import { Places } from './places.js'

/** Why this side ends a connection that could go on. */
export type Ending = 'draining' | 'not-reading' | 'not-valid'

/** A connection that lives: a WebSocket or an event stream. */
export interface Connection {
  /** Whose it is, by the credential that counts now. */
  readonly principal: Principal
  /** A measure of what was written and not taken yet: it falls as long as the client reads. */
  unsent (): number
  /** Regular work, called about once a second. */
  beat (now: number): void
  /** Ends it in order: the client is told why, as far as it reads. */
  end (why: Ending): void
  /** Ends it at once. */
  terminate (): void
  onClose (listener: () => void): void
}

export interface SessionsOptions {
  maxPerModule: number
  slowClientMs: number
  /** Says whether the keys that a connection's credential stands on still count. */
  identity: Pick<Identity, 'refresh' | 'lives'>
}

interface Reading { stuckSince: number | undefined, unsent: number }

export class Sessions {
  readonly #connections = new Map<Connection, Reading>()
  readonly #places: Places
  /** Watches of a module over all its connections. */
  readonly watches = new Places(limits.watchesPerModule)
  #timer: NodeJS.Timeout | undefined
  #draining = false

  constructor (private readonly options: SessionsOptions) { this.#places = new Places(options.maxPerModule) }

  get size (): number { return this.#connections.size }

  /** Takes a place for one more connection of a module. Throws where it has too many, or while draining. */
  enter (module: string): void {
    if (this.#draining) throw new MeshError('unavailable', 'this gateway is going down: connect to another, or again in a moment')
    if (!this.#places.take(module)) {
      throw new MeshError('too-many-requests', `the module has ${this.#places.most} connections, which is the most: close some`, { retryAfterS: 5 })
    }
  }

  leave (module: string): void { this.#places.give(module) }

  add (connection: Connection): void {
    this.#connections.set(connection, { stuckSince: undefined, unsent: 0 })
    connection.onClose(() => this.#remove(connection))
    this.#timer ??= setInterval(() => this.#beat(), limits.beatMs)
    // It had its place before, and its handshake was not through.
    if (this.#draining) connection.end('draining')
  }

  /** From now on no connection comes in; those that live go on. */
  takeNoMore (): void { this.#draining = true }

  /**
   * Tells every client to come back later and elsewhere: one after the other within `tellMs`, each at a random moment of its turn, so that
   * they do not come back as one wave. Those that do not close in `graceMs` are ended: a mute client would hold the server's close for 30 s.
   */
  async drain (graceMs: number, tellMs = 0): Promise<void> {
    this.takeNoMore()
    const open = [...this.#connections.keys()]
    const began = Date.now()
    for (const [turn, connection] of open.entries()) {
      const waitMs = began + (turn + Math.random()) * tellMs / open.length - Date.now()
      if (waitMs >= 1) await pause(waitMs)
      // One that has left meanwhile needs no word.
      if (this.#connections.has(connection)) connection.end('draining')
    }
    const left = [...this.#connections.keys()]
    if (left.length === 0) return
    const closed = Promise.all(left.map((connection) => new Promise<void>((resolve) => connection.onClose(resolve))))
    let timer: NodeJS.Timeout | undefined
    await Promise.race([closed, new Promise((resolve) => { timer = setTimeout(resolve, graceMs) })])
    clearTimeout(timer)
    for (const connection of this.#connections.keys()) connection.terminate()
  }

  #remove (connection: Connection): void {
    this.#connections.delete(connection)
    if (this.#connections.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #beat (): void {
    // No request comes on these connections that would have the keys looked at.
    void this.options.identity.refresh().then(() => this.#endInvalid())
    const now = Date.now()
    for (const [connection, reading] of this.#connections) {
      if (this.#reads(connection.unsent(), reading, now)) connection.beat(now)
      else {
        connection.end('not-reading')
        connection.terminate()
      }
    }
  }

  /** A credential ends with the key that it stands on: who took the key away means it. */
  #endInvalid (): void {
    for (const connection of this.#connections.keys()) if (!this.options.identity.lives(connection.principal)) connection.end('not-valid')
  }

  /** Whether a client with much unsent still reads: less is unsent than before, or not for long. */
  #reads (unsent: number, reading: Reading, now: number): boolean {
    if (unsent < limits.unsentBytes / 2 || unsent < reading.unsent) reading.stuckSince = undefined
    else reading.stuckSince ??= now
    reading.unsent = unsent
    return reading.stuckSince === undefined || now - reading.stuckSince < this.options.slowClientMs
  }
}
