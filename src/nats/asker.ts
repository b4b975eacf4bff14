/**
 * Requests on one inbox subscription and one coarse timer. The client library makes a promise, a timer and bookkeeping for
 * each request, which costs about twice the time of a shared inbox; a get that the view cannot serve is one such request.
 */
import type { Msg, NatsConnection, Subscription } from 'nats'
import { MeshError } from '../core/errors.js'
import { headersOf } from './headers.js'
import { newInbox } from './user.js'

interface Pending {
  subject: string
  payload: Uint8Array
  deadline: number
  /** When the question is said once more; 0 once it was. */
  again: number
  resolve (msg: Msg): void
  reject (error: MeshError): void
}

const sweepMs = 20
const noResponders = 503

export class Asker {
  readonly #inbox: string
  readonly #pending = new Map<string, Pending>()
  #sub: Subscription | undefined
  #token = 0
  #timer: NodeJS.Timeout | undefined

  constructor (readonly connection: NatsConnection) {
    this.#inbox = newInbox(connection)
    this.#listen()
  }

  /**
   * Asks `subject` and resolves with the reply, or rejects with `unavailable` or `timeout`. Where half of `timeoutMs` goes by
   * without an answer the question is said once more: a stopped member of a queue group still gets its share (DESIGN section 4).
   */
  ask (subject: string, payload: Uint8Array, timeoutMs: number): Promise<Msg> {
    return new Promise((resolve, reject) => {
      const now = Date.now()
      const token = (++this.#token).toString(36)
      this.#pending.set(token, { subject, payload, deadline: now + timeoutMs, again: now + timeoutMs / 2, resolve, reject })
      try {
        if (!this.#sub) this.#listen()
        this.#say(token, subject, payload)
      } catch (error) {
        this.#pending.delete(token)
        reject(new MeshError('unavailable', 'the gateway is not connected to the bus', { cause: error }))
        return
      }
      this.#timer ??= setInterval(() => this.#sweep(), sweepMs)
    })
  }

  /** Everything that waits is told at once that the bus is away: an answer can no longer come. */
  fail (why = 'the gateway is not connected to the bus'): void {
    for (const [token, waiting] of this.#pending) {
      this.#pending.delete(token)
      waiting.reject(new MeshError('unavailable', why))
    }
  }

  close (): void {
    this.fail()
    clearInterval(this.#timer)
    const sub = this.#sub
    this.#sub = undefined
    if (!this.connection.isClosed()) sub?.unsubscribe()
  }

  #listen (): void {
    const sub = this.#sub = this.connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, msg) => error ? this.#ended(sub) : this.#heard(msg)
    })
    void sub.closed.then(() => this.#ended(sub))
  }

  /** The server ended the inbox, as when permissions are narrowed while the connection stays: the next ask tries for a new one. */
  #ended (sub: Subscription): void {
    if (sub !== this.#sub) return
    this.#sub = undefined
    this.fail('the bus does not let the gateway hear answers')
  }

  #heard (msg: Msg): void {
    const token = msg.subject.slice(this.#inbox.length + 1)
    const waiting = this.#pending.get(token)
    if (!waiting) return // answered by its first try already, or too late
    this.#pending.delete(token)
    if (msg.data.length === 0 && headersOf(msg)?.code === noResponders) {
      waiting.reject(new MeshError('unavailable', 'nobody answers for this node: its provisioner is not running or not on the bus'))
    } else waiting.resolve(msg)
  }

  #say (token: string, subject: string, payload: Uint8Array): void {
    this.connection.publish(subject, payload, { reply: `${this.#inbox}.${token}` })
  }

  #sweep (): void {
    const now = Date.now()
    for (const [token, waiting] of this.#pending) {
      if (now >= waiting.deadline) {
        this.#pending.delete(token)
        waiting.reject(new MeshError('timeout', 'the provisioner did not answer in time'))
      } else if (waiting.again !== 0 && now >= waiting.again) {
        waiting.again = 0
        try { this.#say(token, waiting.subject, waiting.payload) } catch { /* the deadline will tell */ }
      }
    }
    if (this.#pending.size === 0) {
      clearInterval(this.#timer)
      this.#timer = undefined
    }
  }
}

/** The error of a NATS services API reply: its code and reason; undefined for a plain reply. */
export function serviceError (msg: Msg): { code: number, reason: string } | undefined {
  const code = headersOf(msg)?.get('Nats-Service-Error-Code')
  return code ? { code: Number(code), reason: headersOf(msg)?.get('Nats-Service-Error') ?? '' } : undefined
}
