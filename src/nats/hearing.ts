/**
 * The one subscription that hears every word of a node's provisioner, and whether it hears for certain: it is confirmed by a
 * round trip after each (re)connect, and it can end alone, when the server's permissions are narrowed while the
 * connection stays (DESIGN section 2, the view).
 */
import type { Msg, NatsConnection, Subscription } from 'nats'
import { limits } from '../core/limits.js'
import { isName, readableKinds, whyNoKey, type Kind } from '../core/names.js'
import type { Hearing, Word } from '../core/ports.js'
import { parseRevision } from '../core/revision.js'
import type { Log } from './connection.js'
import { headersOf } from './headers.js'
import { revisionHeader, subjects } from './subjects.js'

const decoder = new TextDecoder()

/** A word as the view takes it; undefined for one that is none (no such kind, no revision, a key that is none). */
export function wordOf (msg: Msg): Word | undefined {
  const module = msg.subject.split('.')[3]
  const revision = parseRevision(headersOf(msg)?.get(revisionHeader) || undefined)
  if (!isName(module) || !revision) return undefined
  let said: { kind?: unknown, key?: unknown } | null
  try { said = JSON.parse(decoder.decode(msg.data)) } catch { return undefined }
  if (!said || !readableKinds.includes(said.kind as Kind)) return undefined
  if (said.key !== undefined && whyNoKey(said.key) !== undefined) return undefined
  return { module, kind: said.kind as Kind, ...(said.key === undefined ? {} : { key: said.key as string }), revision }
}

export class Ear {
  #nc: NatsConnection | undefined
  #sub: Subscription | undefined
  #pause: NodeJS.Timeout | undefined
  #pauseMs: number = limits.reconnectMs
  #odd = 0
  /** Why changes are not heard, as it was said last: each try would say it again. */
  #said = ''

  constructor (private readonly node: string, private readonly view: Hearing, private readonly log: Log) {}

  /** The bus is there (again). A client library that reconnects keeps its subscriptions; the round trip shows that the server took it. */
  up (nc: NatsConnection): void {
    clearTimeout(this.#pause)
    if (this.#nc !== nc) this.#sub = undefined
    this.#nc = nc
    this.#pauseMs = limits.reconnectMs
    if (!this.#sub) this.#subscribe(nc)
    else void this.#confirm(nc, this.#sub)
  }

  down (): void {
    clearTimeout(this.#pause)
    this.view.hears(false)
  }

  stop (): void {
    clearTimeout(this.#pause)
    const sub = this.#sub
    this.#sub = undefined
    if (this.#nc && !this.#nc.isClosed()) sub?.unsubscribe()
  }

  #subscribe (nc: NatsConnection): void {
    const sub = this.#sub = nc.subscribe(subjects.changedOfAll(this.node), {
      callback: (error, msg) => {
        if (error) return this.#ended(sub, error.message)
        const word = wordOf(msg)
        if (word) return this.view.word(word)
        // Said once in a hundred: whoever sends them may send many.
        if (this.#odd++ % 100 === 0) this.log.warn({ subject: msg.subject }, 'a word of the provisioner was not understood and is ignored')
      }
    })
    void sub.closed.then(() => this.#ended(sub, 'the subscription was closed'))
    void this.#confirm(nc, sub)
  }

  async #confirm (nc: NatsConnection, sub: Subscription): Promise<void> {
    try {
      await nc.flush()
    } catch { return } // the connection went; the next `up` confirms
    if (sub !== this.#sub || sub.isClosed()) return
    this.#pauseMs = limits.reconnectMs
    this.#said = ''
    this.view.hears(true)
  }

  /** The server ended the subscription (a permission change) or refused it: nothing is heard until it takes it again. */
  #ended (sub: Subscription, why: string): void {
    if (sub !== this.#sub) return
    this.#sub = undefined
    this.view.hears(false)
    const nc = this.#nc
    if (!nc || nc.isClosed()) return
    if (why !== this.#said) this.log.warn({ why }, 'changes are not heard; subscribing again')
    this.#said = why
    this.#pause = setTimeout(() => this.#subscribe(nc), this.#pauseMs)
    this.#pauseMs = Math.min(2 * this.#pauseMs, limits.reaskLongestMs)
  }
}
