/** One client's connection to /watch: its calls, its watches, and what it is told (DESIGN section 7). */
import type { Socket } from 'node:net'
import type { WebSocket } from 'ws'
import { asMeshError, MeshError, problems } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { ValueName } from '../core/names.js'
import { askedValue } from '../core/provision/asked.js'
import type { Entry } from '../core/provision/entry.js'
import { idOfEtag } from '../core/provision/said.js'
import type { View } from '../core/provision/view.js'
import type { Principal } from '../identity/principal.js'
import { Allowance } from './allowance.js'
import { meshError, notification, result, rpcError, rpcErrors, valueResult, type Id } from './frames.js'
import { readMessage } from './json-rpc.js'
import { closeCodes, closings } from './close-codes.js'
import type { Places } from './places.js'
import type { Connection, Ending } from './sessions.js'
import { inKernelsWay } from './unsent.js'
import { Until } from './until.js'
import { Watch, type Speaker } from './watch.js'

export interface SessionOptions {
  view: View
  /** The connection's own socket. */
  transport: Socket
  principal: Principal
  maxWatches: number
  /** The places for watches that the module's connections share. */
  places: Places
  maxFrameBytes: number
  /** Who a token proves to be; rejects with the MeshError of a 401. */
  principalOf (token: string): Promise<Principal>
  /** Counts a message; false where there are too many. */
  mayCall (principal: Principal): boolean
  /** An unexpected error in a call; the client is told `internal`. */
  failed (error: unknown): void
}

type Method = (session: WatchSession, id: Id, params: Record<string, unknown>) => Promise<void> | void

const tooMany = 'too many messages'

const seconds = (ms: number): number => Math.max(0, Math.ceil(ms / 1000))

export class WatchSession implements Connection, Speaker {
  readonly watches = new Map<string, Watch>()
  principal: Principal
  /** Why and with which code this side closed; undefined while it has not. */
  closedWith: number | undefined
  #calls = 0
  #notLive = 0
  #saidLive = true
  #tickAt = Date.now() + limits.tickMs
  #pingAt = Date.now() + limits.pingMs
  #pongBy: number | undefined
  #saidExpiring = false
  #bad = { since: 0, count: 0 }
  #cutOff: NodeJS.Timeout | undefined
  readonly #allowance = new Allowance(limits.messagesPerSecond, limits.messagesAtOnce, Date.now())
  readonly #expiry = new Until(() => this.close(closeCodes.expired, 'the credential expired'))
  readonly #behind = new Set<Watch>()

  constructor (readonly socket: WebSocket, private readonly options: SessionOptions) {
    this.principal = options.principal
    socket.on('message', (data, isBinary) => this.#message(data as Buffer, isBinary))
    socket.on('close', () => this.#release())
    // Each ping is answered, which costs as much as a message does; pongs nobody asked for cost less, and no client has a reason to send them.
    socket.on('ping', () => this.#mayCome())
    socket.on('pong', () => {
      this.#pongBy = undefined
      this.#mayCome()
    })
    const { maxWatches, maxFrameBytes } = options
    this.send(notification('session.hello', {
      module: this.principal.name,
      expiresIn: this.#expiresIn(),
      limits: { watches: maxWatches, frameBytes: maxFrameBytes, callsInFlight: limits.callsInFlight, unsentBytes: limits.unsentBytes },
      tickSeconds: limits.tickMs / 1000
    }))
    this.#untilExpiry()
  }

  /** Writes a frame; nothing once the connection is closing. */
  send (frame: Buffer): void {
    if (this.socket.readyState === this.socket.OPEN) this.socket.send(frame, { binary: false })
  }

  crowded (): boolean { return this.socket.bufferedAmount > limits.unsentBytes }

  wait (watch: Watch): void { this.#behind.add(watch) }

  /** Everything unsent was written out: those that were skipped say what stands now. */
  drained (): void {
    for (const watch of this.#behind) {
      this.#behind.delete(watch)
      watch.catchUp()
      if (this.#behind.size > 0 && this.crowded()) return
    }
    if (this.socket.isPaused && this.#calls < limits.callsInFlight) this.socket.resume()
  }

  /** The client is told at once when a watch changes whether all are live. */
  countStale (by: 1 | -1): void {
    this.#notLive += by
    if ((this.#notLive === 0) !== this.#saidLive) this.#tick()
  }

  unsent (): number { return this.socket.bufferedAmount + inKernelsWay(this.options.transport) }

  beat (now: number): void {
    if (this.#pongBy !== undefined && now >= this.#pongBy) return this.terminate()
    if (now >= this.#pingAt && this.socket.readyState === this.socket.OPEN) {
      this.#pingAt = now + limits.pingMs
      this.#pongBy = now + limits.pongMs
      this.socket.ping()
    }
    if (now >= this.#tickAt) this.#tick()
    if (!this.#saidExpiring && this.principal.expiresAt - now <= limits.expiringMs) {
      this.#saidExpiring = true
      this.send(notification('session.expiring', { expiresIn: this.#expiresIn() }))
    }
  }

  end (why: Ending): void { this.close(...closings[why]) }

  terminate (): void { this.socket.terminate() }

  onClose (listener: () => void): void { this.socket.once('close', listener) }

  close (code: number, reason: string): void {
    this.closedWith ??= code
    this.socket.close(code, reason)
    this.#release()
  }

  #tick (): void {
    this.#saidLive = this.#notLive === 0
    this.#tickAt = Date.now() + limits.tickMs
    this.send(notification('session.tick', { live: this.#saidLive }))
  }

  #expiresIn (): number { return seconds(this.principal.expiresAt - Date.now()) }

  /** Closes at the credential's end itself, without the leeway that a request has. */
  #untilExpiry (): void {
    this.#expiry.set(this.principal.expiresAt)
    if (this.closedWith === undefined) this.beat(Date.now())
  }

  #release (): void {
    this.#expiry.clear()
    for (const watch of this.watches.values()) this.#drop(watch)
    this.watches.clear()
    this.#behind.clear()
  }

  /** Counts what the client sent; where that is too much the connection ends. Whatever comes after its end is counted, too. */
  #mayCome (): boolean {
    const few = this.#allowance.take(Date.now()) === undefined
    if (!few) this.#closeFlooding()
    return few && this.closedWith === undefined
  }

  /** Who sends too much may not stop because it is told: it has a moment to read why, and is cut off. */
  #closeFlooding (): void {
    this.close(closeCodes.tooManyMessages, tooMany)
    this.#cutOff ??= setTimeout(() => this.terminate(), limits.floodGraceMs)
  }

  // A throw in a message listener would end the process: whatever happens here is caught.
  #message (data: Buffer, isBinary: boolean): void {
    if (!this.#mayCome()) return
    if (isBinary) return this.close(closeCodes.binary, 'only text frames are read')
    if (!this.options.mayCall(this.principal)) return this.#closeFlooding()
    try {
      const message = readMessage(data.toString('utf8'))
      if (!message) return
      if ('error' in message) {
        this.#tooBad()
        return this.send(rpcError(message.id, message.error))
      }
      const method = methods.get(message.method)
      if (!method) {
        this.#tooBad()
        return this.send(rpcError(message.id, rpcErrors.method))
      }
      void this.#call(method, message.id, message.params)
    } catch (error) {
      this.options.failed(error)
      this.close(closeCodes.fault, 'the gateway failed')
    }
  }

  async #call (method: Method, id: Id, params: Record<string, unknown>): Promise<void> {
    // One that asks faster than it is answered, or does not read its answers, is not read either until it is through.
    if (++this.#calls >= limits.callsInFlight || this.crowded()) this.socket.pause()
    try {
      await method(this, id, params)
    } catch (error) {
      if (!(error instanceof MeshError)) this.options.failed(error)
      this.send(meshError(id, asMeshError(error)))
    } finally {
      this.#calls--
      if (this.socket.isPaused && this.#calls < limits.callsInFlight && !this.crowded()) this.socket.resume()
    }
  }

  #tooBad (): void {
    const now = Date.now()
    if (now - this.#bad.since > limits.badMessagesMs) this.#bad = { since: now, count: 0 }
    if (++this.#bad.count > limits.badMessages) this.close(closeCodes.badMessages, 'too many messages that are none')
  }

  async get (id: Id, params: Record<string, unknown>): Promise<void> {
    const name = askedValue(this.principal.name, params.kind, params.key)
    const entry = this.options.view.peek(name) ?? await this.options.view.read(name)
    this.#answerSaid(id, entry)
  }

  async watch (id: Id, params: Record<string, unknown>): Promise<void> {
    const name = askedValue(this.principal.name, params.kind, params.key)
    const keep = params.keep === true
    const since = typeof params.since === 'string' ? idOfEtag(params.since) : undefined
    const watch = this.#open(name)
    let unavailable: MeshError | undefined
    let entry = this.options.view.peek(name)
    if (!entry) {
      try {
        entry = await this.options.view.read(name)
      } catch (error) {
        unavailable = asMeshError(error)
      }
    }
    watch.answered()
    // From here to the end nothing waits, so nothing can come between the answer and what follows it.
    const said = entry?.said
    if (unavailable ? keep : keep || (said && 'bytes' in said)) watch.confirm()
    else if (!watch.confirmed && !watch.pending) this.#discard(watch)
    if (unavailable) {
      if (!keep) throw unavailable
      this.send(result(id, { kind: name.kind, key: name.key, unavailable: true }))
      watch.begin(undefined)
    } else if (said && 'refused' in said && keep) {
      this.send(result(id, { kind: name.kind, key: name.key, refused: said.refused }))
      watch.begin(said.id)
    } else {
      if (said && 'bytes' in said && said.id === since) {
        this.send(result(id, { kind: name.kind, key: name.key, etag: said.etag, unchanged: true }))
      } else this.#answerSaid(id, entry as Entry)
      watch.begin(said?.id)
    }
  }

  unwatch (id: Id, params: Record<string, unknown>): void {
    const name = askedValue(this.principal.name, params.kind, params.key)
    const watch = this.watches.get(idOf(name))
    if (watch) this.#discard(watch)
    this.send(result(id, {}))
  }

  async renew (id: Id, params: Record<string, unknown>): Promise<void> {
    if (typeof params.token !== 'string') throw new MeshError('invalid', 'no token given: name a token as a string')
    let next: Principal
    try {
      next = await this.options.principalOf(params.token)
    } catch (error) {
      if (!(error instanceof MeshError)) throw error
      return this.send(meshError(id, error, problems.unauthenticated.rpc))
    }
    // The connection may have ended meanwhile: no timer may begin that would keep it in memory until the new expiry.
    if (this.closedWith !== undefined || this.socket.readyState !== this.socket.OPEN) return
    const { principal } = this
    const why = next.role !== principal.role || next.name !== principal.name
      ? 'the token is of another module'
      : expiresLater(next, principal) ? undefined : 'the credential would not expire later than the one before'
    if (why) return this.send(meshError(id, new MeshError('unauthenticated', `${why}: nothing was changed`)))
    this.principal = next
    this.#saidExpiring = false
    this.send(result(id, { expiresIn: this.#expiresIn() }))
    this.#untilExpiry()
  }

  #answerSaid (id: Id, { name, said }: Entry): void {
    if (said && 'bytes' in said) return this.send(valueResult(id, name, said))
    if (!said) throw new MeshError('unavailable', 'the value is not known')
    throw new MeshError(said.code === 404 ? 'not-declared' : 'refused', said.refused)
  }

  /** The watch of a value: the one that stands, or a new one that waits for its first answer. */
  #open (name: ValueName): Watch {
    const id = idOf(name)
    let watch = this.watches.get(id)
    if (!watch) {
      if (this.watches.size >= this.options.maxWatches) {
        throw new MeshError('too-many-requests', `this connection has ${this.options.maxWatches} watches, which is the most: unwatch some, or open another`, { retryAfterS: 1 })
      }
      const { places } = this.options
      if (!places.take(this.principal.name)) {
        throw new MeshError('too-many-requests', `the module has ${places.most} watches on all its connections, which is the most: unwatch some`, { retryAfterS: 5 })
      }
      watch = new Watch(name, this, this.options.view)
      this.watches.set(id, watch)
    }
    watch.asked()
    return watch
  }

  #discard (watch: Watch): void {
    if (this.watches.get(idOf(watch.name)) === watch) this.watches.delete(idOf(watch.name))
    this.#behind.delete(watch)
    this.#drop(watch)
  }

  #drop (watch: Watch): void {
    if (watch.drop()) this.options.places.give(this.principal.name)
  }
}

const idOf = ({ kind, key }: ValueName): string => `${kind} ${key}`

const methods = new Map<string, Method>([
  ['mesh/provision.get', (session, id, params) => session.get(id, params)],
  ['mesh/provision.watch', (session, id, params) => session.watch(id, params)],
  ['mesh/provision.unwatch', (session, id, params) => session.unwatch(id, params)],
  ['mesh/auth.renew', (session, id, params) => session.renew(id, params)]
])

/** A certificate's end holds a renewed connection, too: beside one, the token's own part may be renewed without a later end of both. */
function expiresLater (next: Principal, before: Principal): boolean {
  if (next.expiresAt !== before.expiresAt) return next.expiresAt > before.expiresAt
  return next.keys.length > 1 && next.keys.some((key) => !before.keys.includes(key))
}
