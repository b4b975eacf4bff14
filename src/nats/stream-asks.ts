/**
 * Questions to JetStream and writes to its streams, on one inbox subscription and one coarse timer: a take-in makes dozens, and
 * the client library's own requests take some four times the processor time of these.
 */
import { ErrorCode, Events, type Msg, type MsgHdrs, type NatsConnection, type Subscription } from 'nats'
import { Transient } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { headersOf } from './headers.js'
import { newInbox } from './user.js'

/** JetStream's answer where it is an error: its own number, and a status like one of HTTP. */
export interface ApiFailure { code: number, err_code?: number, description?: string }

/** What JetStream answers: what was asked for, or `error`. */
export type Reply<T> = T & { error?: ApiFailure }

/** The bus does not let this connection publish to the subject. */
export class NotAllowed extends Error {
  override readonly name = 'NotAllowed'
  constructor () { super('the bus does not let this user do that') }
}

/** The bus takes no message of that size: trying again does not help. */
export class TooLarge extends Error {
  override readonly name = 'TooLarge'
}

interface Pending { subject: string, deadline: number, resolve (msg: Msg): void, reject (error: Error): void }

const encoder = new TextEncoder()
const noResponders = 503

export class StreamAsks {
  readonly #inbox: string
  readonly #pending = new Map<string, Pending>()
  #connected = true
  /** Those who ask while the bus is away. */
  readonly #away = new Set<() => void>()
  #sub: Subscription | undefined
  #token = 0
  #timer: NodeJS.Timeout | undefined

  constructor (private readonly nc: NatsConnection) {
    this.#inbox = newInbox(nc)
    void this.#hear()
  }

  /**
   * JetStream's answer. Rejects with Transient where none comes, with NotAllowed, or with TooLarge. What is asked while the bus is away waits for it,
   * no longer than an answer may take.
   */
  async ask<T extends object> (subject: string, question: string, headers?: MsgHdrs): Promise<Reply<T>> {
    if (!this.#connected) await this.#back()
    const payload = encoder.encode(question)
    const most = this.nc.info?.max_payload ?? limits.documentBytes
    if (payload.length + limits.writeHeaderBytes > most) throw new TooLarge(`it is ${payload.length} bytes, and the bus takes messages of ${most} with their headers: make it smaller`)
    const { data } = await this.#say(subject, payload, headers)
    return JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString()) as Reply<T>
  }

  #say (subject: string, payload: Uint8Array, headers: MsgHdrs | undefined): Promise<Msg> {
    return new Promise((resolve, reject) => {
      const token = (++this.#token).toString(36)
      this.#pending.set(token, { subject, deadline: Date.now() + limits.jetstreamMs, resolve, reject })
      try {
        this.#sub ??= this.#listen()
        this.nc.publish(subject, payload, { reply: `${this.#inbox}.${token}`, ...(headers ? { headers } : {}) })
      } catch (error) {
        this.#pending.delete(token)
        reject(new Transient('the bus is away', { cause: error }))
        return
      }
      this.#timer ??= setInterval(() => this.#sweep(), limits.jetstreamSweepMs)
    })
  }

  async #back (): Promise<void> {
    await new Promise<void>((resolve) => {
      const tell = (): void => {
        clearTimeout(timer)
        this.#away.delete(tell)
        resolve()
      }
      const timer = setTimeout(tell, limits.jetstreamMs)
      this.#away.add(tell)
    })
    if (!this.#connected) throw new Transient('the bus is away')
  }

  #listen (): Subscription {
    const sub = this.nc.subscribe(`${this.#inbox}.*`, { callback: (error, msg) => error ? this.#ended(sub) : this.#heard(msg) })
    void sub.closed.then(() => this.#ended(sub))
    return sub
  }

  /** The server ended the inbox, as when permissions are narrowed while the connection stays: the next question tries for a new one. */
  #ended (sub: Subscription): void {
    if (sub !== this.#sub) return
    this.#sub = undefined
    this.#fail(() => true, () => new Transient('the bus does not let this connection hear answers'))
  }

  #heard (msg: Msg): void {
    const token = msg.subject.slice(this.#inbox.length + 1)
    const waiting = this.#pending.get(token)
    if (!waiting) return // too late
    this.#pending.delete(token)
    if (msg.data.length === 0 && headersOf(msg)?.code === noResponders) waiting.reject(new Transient('nobody answers'))
    else waiting.resolve(msg)
  }

  /**
   * An answer that was on its way when the connection was lost does not come any more. A refusal comes as an error of the
   * connection, which names the subject.
   */
  async #hear (): Promise<void> {
    for await (const { type, data, permissionContext } of this.nc.status()) {
      if (type === Events.Disconnect) {
        this.#connected = false
        this.#fail(() => true, () => new Transient('the connection to the bus was lost'))
      } else if (type === Events.Reconnect) {
        this.#connected = true
        for (const tell of [...this.#away]) tell()
      }
      if (type !== Events.Error || data !== ErrorCode.PermissionsViolation || permissionContext?.operation !== 'publish') continue
      this.#fail(({ subject }) => subject === permissionContext.subject, () => new NotAllowed())
    }
  }

  #fail (which: (one: Pending) => boolean, error: () => Error): void {
    for (const [token, one] of this.#pending) {
      if (!which(one)) continue
      this.#pending.delete(token)
      one.reject(error())
    }
  }

  #sweep (): void {
    const now = Date.now()
    this.#fail(({ deadline }) => now >= deadline, () => new Transient(`no answer within ${limits.jetstreamMs} ms`))
    if (this.#pending.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}
