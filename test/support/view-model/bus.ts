/** Between the provisioners and the view: questions and words on their way, and all that can go wrong with them. */
import { MeshError } from '../../../src/core/errors.js'
import { limits } from '../../../src/core/limits.js'
import type { ValueName } from '../../../src/core/names.js'
import type { Answer, Keys, Provisioner, Word } from '../../../src/core/ports.js'
import type { View } from '../../../src/core/provision/view.js'
import type { Ledger } from './ledger.js'
import { idOf, type Mesh } from './mesh.js'

interface Asked {
  name: ValueName
  at: number
  began: number
  /** Who got the question; a stopped one gets its share, so it is said once more after half of the time. */
  by?: number
  again: boolean
  /** The reply on its way: what stood when the question was read. */
  reply?: Answer
  resolve (answer: Answer): void
  reject (error: MeshError): void
}

export type Fault = 'bad-answer' | 'unavailable' | 'mute'

export interface BusOptions { mesh: Mesh, ledger: Ledger, now: () => number, random: () => number, askTimeoutMs: number }

export class Bus implements Provisioner {
  /** `mute` is a connection that went half-open: nothing comes, and nobody knows yet. */
  link: 'up' | 'mute' | 'away' = 'up'
  /** What goes wrong with the asks of one value alone. */
  readonly faults = new Map<string, Fault>()
  readonly asks: Asked[] = []
  /** How many asks were in flight at once. */
  most = 0
  #subscribed = true
  #lastWord: Word | undefined
  readonly #words: Word[][] = [[], []]
  readonly #count = new Map<string, number>()

  constructor (private readonly options: BusOptions) {}

  // --- the port ---

  ask (name: ValueName): Promise<Answer> {
    const { ledger, now } = this.options
    const began = ledger.asked()
    const id = idOf(name)
    this.#count.set(id, (this.#count.get(id) ?? 0) + 1)
    if (this.asks.some((other) => idOf(other.name) === id)) ledger.wrong(`${id} is asked twice at a time`)
    return new Promise((resolve, reject) => {
      const asked: Asked = { name, at: now(), began, again: false, resolve, reject }
      this.asks.push(asked)
      this.most = Math.max(this.most, this.asks.length)
      if (this.asks.length > limits.asksInFlight) ledger.wrong(`${this.asks.length} asks are in flight`)
      // Not before those who ask in the same breath could join.
      if (this.link === 'away') queueMicrotask(() => { if (this.asks.includes(asked)) this.#fail(this.asks.indexOf(asked), 'unavailable') })
    })
  }

  async list (): Promise<Keys> { return { config: [], bound: [] } }

  // --- asks ---

  countOf (name: ValueName): number { return this.#count.get(idOf(name)) ?? 0 }

  /** A question is read by a provisioner; its reply is on the way. */
  see (which: number, by: number): void {
    const asked = this.#asked(which)
    if (!asked || this.link !== 'up' || this.options.mesh.followers[by]?.life !== 'up') return
    asked.by = by
    asked.reply ??= this.options.mesh.answer(by, asked.name)
  }

  /** What would happen to one question now happens. */
  serve (which: number): void {
    const asked = this.#asked(which)
    if (!asked || this.link !== 'up') return
    const at = this.asks.indexOf(asked)
    if (asked.reply) return this.#answer(at, asked.reply)
    const fault = this.faults.get(idOf(asked.name))
    if (fault === 'mute') return
    if (fault) return this.#fail(at, fault)
    const { mesh, now, random, askTimeoutMs } = this.options
    if (asked.by === undefined || (!asked.again && now() - asked.at >= askTimeoutMs / 2)) {
      const there = mesh.followers.flatMap(({ life }, by) => life === 'gone' ? [] : [by])
      if (there.length === 0) return this.#fail(at, 'unavailable')
      asked.again = asked.by !== undefined
      asked.by = there[Math.floor(random() * there.length)] as number
    }
    if (mesh.followers[asked.by]?.life === 'up') this.#answer(at, mesh.answer(asked.by, asked.name))
  }

  serveAll (): void {
    for (const asked of [...this.asks]) this.serve(this.asks.indexOf(asked))
  }

  fail (which: number, how: 'bad-answer' | 'unavailable'): void {
    const asked = this.#asked(which)
    if (asked) this.#fail(this.asks.indexOf(asked), how)
  }

  /** What was not answered in time never is. */
  expire (): void {
    for (const asked of [...this.asks]) {
      if (this.options.now() - asked.at >= this.options.askTimeoutMs) this.#fail(this.asks.indexOf(asked), 'timeout')
    }
  }

  #asked (which: number): Asked | undefined { return this.asks[which % this.asks.length] }

  #answer (at: number, answer: Answer): void {
    const [asked] = this.asks.splice(at, 1) as [Asked]
    this.options.ledger.answered(asked.name, answer, asked.began)
    asked.resolve(answer)
  }

  #fail (at: number, how: 'bad-answer' | 'unavailable' | 'timeout'): void {
    const [asked] = this.asks.splice(at, 1) as [Asked]
    this.options.ledger.failed(asked.name, how === 'bad-answer')
    asked.reject(new MeshError(how, how))
  }

  // --- words ---

  /** A provisioner says something: on its way where anybody listens, else lost. */
  say (by: number, words: Word[]): void { if (this.#subscribed && this.link !== 'away') this.#words[by]?.push(...words) }

  hear (view: View, by: number, most: number): void {
    if (this.link !== 'up') return
    for (const word of this.#words[by]?.splice(0, most) ?? []) this.#deliver(view, word)
  }

  /** The last word once more. */
  repeat (view: View): void { if (this.#lastWord && this.link === 'up' && this.#subscribed) this.#deliver(view, this.#lastWord) }

  /** Whether a word about a value is still on its way. */
  wordUnderWay (name: ValueName): boolean { return this.#words.flat().some((word) => concerns(word, name)) }
  get quiet (): boolean { return this.#words.flat().length === 0 }

  #deliver (view: View, word: Word): void {
    this.#lastWord = word
    this.options.ledger.heard(word, this.options.mesh.names.filter((name) => concerns(word, name)), (name) => view.lastKnown(name) !== undefined)
    view.word(word)
  }

  // --- the connection and the subscription ---

  lose (view: View, failFirst: boolean): void {
    this.link = 'away'
    const fail = (): void => { while (this.asks.length > 0) this.#fail(0, 'unavailable') }
    if (failFirst) fail()
    this.deafen(view)
    fail()
  }

  /** The subscription ends alone. */
  deafen (view: View): void {
    this.#subscribed = false
    for (const words of this.#words) words.length = 0
    this.options.ledger.hears(false)
    view.hears(false)
  }

  /** Asks are answered again; the client library subscribes at once, but that is not confirmed yet. */
  reconnect (): void {
    this.link = 'up'
    this.#subscribed = true
  }

  confirm (view: View): void {
    if (this.link !== 'up' || !this.#subscribed) return
    this.options.ledger.hears(true)
    view.hears(true)
  }
}

const concerns = (word: Word, { module, kind, key }: ValueName): boolean =>
  word.module === module && word.kind === kind && (word.key === undefined || word.key === key)
