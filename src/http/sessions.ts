/** All live connections of this gateway: how many a module has, their heartbeats, and their orderly end. */
import type { WebSocket } from 'ws'
import { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { closeCodes, type WatchSession } from './watch-session.js'

interface Beat { pingAt: number, pongBy: number | undefined, stuckSince: number | undefined, unsent: number }

const beatMs = 1000

export class Sessions {
  readonly #sessions = new Map<WatchSession, Beat>()
  readonly #perModule = new Map<string, number>()
  #timer: NodeJS.Timeout | undefined
  #draining = false

  constructor (private readonly options: { maxPerModule: number, slowClientMs: number }) {}

  get size (): number { return this.#sessions.size }

  /** Takes a place for one more connection of a module. Throws where it has too many, or while draining. */
  enter (module: string): void {
    if (this.#draining) throw new MeshError('unavailable', 'this gateway is going down: connect to another, or again in a moment')
    const has = this.#perModule.get(module) ?? 0
    if (has >= this.options.maxPerModule) {
      throw new MeshError('too-many-requests', `the module has ${has} connections, which is the most: close some`, { retryAfterS: 5 })
    }
    this.#perModule.set(module, has + 1)
  }

  leave (module: string): void {
    const has = (this.#perModule.get(module) ?? 1) - 1
    if (has > 0) this.#perModule.set(module, has)
    else this.#perModule.delete(module)
  }

  add (session: WatchSession): void {
    const { socket } = session
    const beat: Beat = { pingAt: Date.now() + limits.pingMs, pongBy: undefined, stuckSince: undefined, unsent: 0 }
    this.#sessions.set(session, beat)
    socket.on('pong', () => { beat.pongBy = undefined })
    socket.on('close', () => this.#remove(session))
    this.#timer ??= setInterval(() => this.#beat(), beatMs)
  }

  /**
   * Tells every client to come back later and elsewhere, and ends those that do not answer. A mute client would hold the
   * server's close for 30 s.
   */
  async drain (graceMs: number): Promise<void> {
    this.#draining = true
    const sockets = [...this.#sessions.keys()].map((session) => {
      session.close(closeCodes.draining, 'the gateway is going down: reconnect in a moment')
      return session.socket
    })
    if (sockets.length === 0) return
    const closed = Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve))))
    let timer: NodeJS.Timeout | undefined
    await Promise.race([closed, new Promise((resolve) => { timer = setTimeout(resolve, graceMs) })])
    clearTimeout(timer)
    for (const socket of sockets) socket.terminate()
  }

  #remove (session: WatchSession): void {
    this.#sessions.delete(session)
    if (this.#sessions.size === 0) {
      clearInterval(this.#timer)
      this.#timer = undefined
    }
  }

  #beat (): void {
    const now = Date.now()
    for (const [session, beat] of this.#sessions) {
      const { socket } = session
      if (beat.pongBy !== undefined && now >= beat.pongBy) {
        socket.terminate()
        continue
      }
      if (now >= beat.pingAt && socket.readyState === socket.OPEN) {
        beat.pingAt = now + limits.pingMs
        beat.pongBy = now + limits.pongMs
        socket.ping()
      }
      if (this.#reads(socket, beat, now)) session.beat(now)
      else {
        session.close(closeCodes.notReading, 'nothing was read for too long: come back in a moment')
        socket.terminate()
      }
    }
  }

  /** Whether a client with much unsent still reads: less is unsent than before, or not for long. */
  #reads (socket: WebSocket, beat: Beat, now: number): boolean {
    const unsent = socket.bufferedAmount
    if (unsent < limits.unsentBytes / 2 || unsent < beat.unsent) beat.stuckSince = undefined
    else beat.stuckSince ??= now
    beat.unsent = unsent
    return beat.stuckSince === undefined || now - beat.stuckSince < this.options.slowClientMs
  }
}
