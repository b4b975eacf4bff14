/** A view in memory: a provisioner that answers when the test says so, a clock that stands still, a queue for what is deferred. */
import { setImmediate as turn } from 'node:timers/promises'
import { MeshError, type ProblemName } from '../../src/core/errors.js'
import type { Kind, ValueName } from '../../src/core/names.js'
import type { Answer, Keys, Provisioner } from '../../src/core/ports.js'
import { Reader, type Due } from '../../src/core/provision/reader.js'
import type { Entry, Watcher } from '../../src/core/provision/entry.js'
import { View } from '../../src/core/provision/view.js'

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** A value of module m1, of kind config. */
export const named = (key: string, module = 'm1', kind: Kind = 'config'): ValueName => ({ module, kind, key })

/** A value as JSON text, or how it is refused. */
export const textOf = ({ said }: Entry): unknown =>
  said && ('bytes' in said ? decoder.decode(said.bytes) : { refused: said.refused, code: said.code })

/** One question that was asked, and the ways to answer it. */
export class Question {
  readonly promise: Promise<Answer>
  answered = false
  #resolve!: (answer: Answer) => void
  #reject!: (error: Error) => void

  constructor (readonly name: ValueName) {
    this.promise = new Promise((resolve, reject) => { this.#resolve = resolve; this.#reject = reject })
  }

  value (value: unknown, revision = 1, epoch = 1): void {
    this.#answer({ bytes: encoder.encode(JSON.stringify(value)), revision: { epoch, revision } })
  }

  refuse (refused: string, revision = 1, code: 403 | 404 = 403): void {
    this.#answer({ refused, code, revision: { epoch: 1, revision } })
  }

  fail (problem: ProblemName): void {
    this.answered = true
    this.#reject(new MeshError(problem, problem))
  }

  #answer (answer: Answer): void {
    this.answered = true
    this.#resolve(answer)
  }
}

export class HandHeld implements Provisioner {
  now = 1_700_000_000_000
  readonly questions: Question[] = []
  readonly deferred: Array<() => void> = []
  readonly rewound: ValueName[] = []
  /** How often the keys of a module were asked for. */
  lists = 0
  /** Answers each question as it is asked. */
  auto: ((question: Question) => void) | undefined
  readonly view: View

  constructor ({ askTimeoutMs = 2000, hearing = true } = {}) {
    this.view = new View({
      provisioner: this,
      now: () => this.now,
      defer: (work) => this.deferred.push(work),
      random: () => 1,
      askTimeoutMs,
      rewound: (name) => this.rewound.push(name)
    })
    if (hearing) this.view.hears(true)
  }

  ask (name: ValueName): Promise<Answer> {
    const question = new Question(name)
    this.questions.push(question)
    this.auto?.(question)
    return question.promise
  }

  async list (): Promise<Keys> {
    this.lists++
    return { config: [], bound: [] }
  }

  /** Questions that wait for an answer. */
  get open (): Question[] { return this.questions.filter(({ answered }) => !answered) }

  /** The one that waits for an answer; throws where it is none or not one alone. */
  get only (): Question {
    const [question, ...more] = this.open
    if (!question || more.length > 0) throw new Error(`${this.open.length} questions wait for an answer, not one`)
    return question
  }

  /** Lets everything that was answered be taken in. */
  async settle (): Promise<void> { for (let i = 0; i < 3; i++) await turn() }

  /** Lets `ms` go by in steps as the gateway's timer has them; what is deferred has its turn, too. */
  async pass (ms: number, step = 25): Promise<void> {
    for (const end = this.now + ms; this.now < end;) {
      this.now = Math.min(end, this.now + step)
      this.view.tick()
      this.runDeferred()
      // Promises that were settled a moment ago are taken in; nothing here waits for the clock.
      for (let i = 0; i < 10; i++) await undefined
    }
  }

  runDeferred (): void { for (const work of this.deferred.splice(0)) work() }

  /** Passes time until it holds, and says how much; throws after `ms` of it. */
  async passUntil (what: string, holds: () => boolean, ms: number): Promise<number> {
    const began = this.now
    while (!holds()) {
      if (this.now - began >= ms) throw new Error(`${what}: not within ${ms} ms of the clock`)
      await this.pass(25)
    }
    return this.now - began
  }

  word (key: string | undefined, revision: number, { module = 'm1', kind = 'config' as Kind, epoch = 1 } = {}): void {
    this.view.word({ module, kind, ...(key === undefined ? {} : { key }), revision: { epoch, revision } })
  }

  /** A watch that keeps what it was told. */
  watch (key: string): HandHeldWatch { return new HandHeldWatch(this.view, named(key)) }
}

export class HandHeldWatch implements Watcher {
  readonly told: unknown[] = []
  readonly entry: Entry
  readonly #reader = new Reader()

  constructor (private readonly view: View, name: ValueName) { this.entry = view.attach(name, this) }

  sync (entry: Entry): void {
    const due: Due = this.#reader.due(entry)
    if (due !== undefined) this.told.push(due === 'said' ? textOf(entry) : due)
  }

  end (): void { this.view.detach(this.entry, this) }
}
