/**
 * The coherent view of a node's values: many readers, one ask at a time, nothing old ever handed, never silently stale
 * (DESIGN section 2). Time comes from outside, by `now` and `tick`, so that tests can hold it still.
 */
import { asMeshError, MeshError } from '../errors.js'
import { limits } from '../limits.js'
import type { ValueName } from '../names.js'
import type { Answer, Hearing, Keys, Now, Provisioner, Word } from '../ports.js'
import { isOlder } from '../revision.js'
import type { Ask, Entry, Waiter, Watcher } from './entry.js'
import { Fanout, type Defer } from './fanout.js'
import { Gate } from './gate.js'
import { Liveness } from './liveness.js'
import { saidAgain } from './said.js'
import { Shelf } from './shelf.js'

export interface ViewOptions {
  provisioner: Provisioner
  now: Now
  defer: Defer
  /** Between 0 and 1; spreads pauses so that many gateways do not ask in step. */
  random: () => number
  askTimeoutMs: number
  /** A bucket was rewound: what an operator should know. */
  rewound? (name: ValueName): void
}

/** What the view counted since it began. */
export interface ViewCounts { asks: number, hits: number, words: number, rewound: number }

export class View implements Hearing {
  readonly counts: ViewCounts = { asks: 0, hits: 0, words: 0, rewound: 0 }
  readonly #shelf: Shelf
  readonly #gate = new Gate(limits.asksInFlight, limits.asksQueued, limits.asksQueuedPerModule)
  readonly #fanout: Fanout
  /** Entries with somebody waiting, with a pause running, or lagging: what `tick` looks at. */
  readonly #attended = new Set<Entry>()
  /** Those who wait for a list of keys. */
  readonly #listing = new Set<Waiter>()
  #hearing = false
  #generation = 0
  readonly #liveness: Liveness

  constructor (private readonly options: ViewOptions) {
    this.#fanout = new Fanout(options.defer)
    this.#shelf = new Shelf(options.now, (entry) => this.#attended.delete(entry))
    this.#liveness = new Liveness({
      entries: () => this.#shelf.entries(),
      start: (entry) => this.#start(entry),
      retry: (entry) => this.#retry(entry),
      stale: (entry) => this.#stale(entry)
    }, options.now)
  }

  /** Whether changes are heard for certain, so that a value can be known current. */
  get hearing (): boolean { return this.#hearing }
  /** Whether the provisioner is known to live, as far as anybody looked. */
  get inDoubt (): boolean { return this.#liveness.inDoubt }
  /** How often all of the node came into doubt. */
  get doubts (): number { return this.#liveness.doubts }
  /** Values in memory, watched or not. */
  get size (): number { return this.#shelf.size }

  /** What is known current in memory; undefined where it has to be asked. */
  peek (name: ValueName): Entry | undefined {
    const entry = this.#shelf.find(name)
    if (!entry?.current) return undefined
    this.counts.hits++
    this.#shelf.touch(entry)
    return entry
  }

  /** What was last known of a value, current or not. */
  lastKnown (name: ValueName): Entry | undefined { return this.#shelf.find(name) }

  /**
   * Resolves with the value's entry once it was answered: from memory where it is known current, by one ask that all who wait
   * share where it is not. `noCache` joins only an ask that begins after this call. Rejects with `unavailable`, `timeout` (after
   * ASK_TIMEOUT_MS), `bad-answer` or `overloaded`.
   */
  async read (name: ValueName, { noCache = false } = {}): Promise<Entry> {
    const known = noCache ? undefined : this.peek(name)
    if (known) return known
    const entry = this.#shelf.open(name)
    await new Promise<void>((resolve, reject) => {
      const waiter = { deadline: this.options.now() + this.options.askTimeoutMs, resolve, reject }
      const { ask } = entry
      const mayJoin = !ask?.begun || (!ask.overtaken && !noCache)
      entry[mayJoin ? 'waiters' : 'later'].push(waiter)
      this.#attended.add(entry)
      this.#shelf.touch(entry)
      // While answers are too old the next try has its time; everybody waits for that one.
      if (entry.laggingSince === undefined || entry.retryAt === undefined) this.#start(entry)
    })
    return entry
  }

  /** The keys a module may ask on this node. Rejects as `read` does. */
  async list (module: string): Promise<Keys> {
    return new Promise<Keys>((resolve, reject) => {
      const waiter: Waiter = { deadline: this.options.now() + this.options.askTimeoutMs, resolve: () => undefined, reject }
      this.#listing.add(waiter)
      const asked = this.#gate.through(async () => {
        // Told of the timeout already, while it waited for its turn.
        if (!this.#listing.has(waiter)) throw late()
        return this.options.provisioner.list(module)
      }, module)
      void asked.finally(() => this.#listing.delete(waiter)).then(resolve, reject)
    })
  }

  /** Tells `watcher` of each change from now on. The entry is kept current as long as it is watched. */
  attach (name: ValueName, watcher: Watcher): Entry {
    const entry = this.#shelf.open(name)
    entry.watchers.add(watcher)
    this.#shelf.hold(entry)
    if (!this.#hearing || this.inDoubt) this.#stale(entry)
    if (!entry.current) this.#start(entry)
    return entry
  }

  detach (entry: Entry, watcher: Watcher): void {
    if (!entry.watchers.delete(watcher) || entry.watched) return
    entry.staleSince = undefined
    if (!entry.waitedFor) entry.retryAt = undefined
    this.#settle(entry)
  }

  hears (confirmed: boolean): void {
    if (confirmed === this.#hearing) return
    this.#hearing = confirmed
    this.#generation++
    this.#liveness.hears(confirmed)
    for (const entry of this.#shelf.entries()) {
      if (!confirmed) entry.lose(Math.max(entry.confirmedAt, this.#liveness.signAt))
      if (!entry.watched) continue
      if (confirmed) this.#start(entry)
      else this.#stale(entry)
    }
  }

  word (word: Word): void {
    this.counts.words++
    for (const entry of this.#shelf.moved(word)) this.#moved(entry, word.revision)
    this.#liveness.sign()
  }

  /** Deadlines, pauses, and the probe of a silent provisioner. Called every `limits.viewTickMs`. */
  tick (): void {
    const now = this.options.now()
    for (const entry of this.#attended) this.#attend(entry, now)
    for (const waiter of this.#listing) {
      if (now < waiter.deadline) continue
      this.#listing.delete(waiter)
      waiter.reject(late())
    }
    this.#shelf.tick(now)
    this.#liveness.tick(now)
  }

  // --- asking ---

  #start (entry: Entry): void {
    if (entry.ask) return
    entry.retryAt = undefined
    const ask: Ask = entry.ask = { startedAt: 0, hearing: 0, known: undefined, overtaken: false, begun: false }
    const asked = this.#gate.through(async () => {
      if (entry.ask !== ask) return undefined
      ask.begun = true
      ask.startedAt = this.options.now()
      ask.hearing = this.#generation
      ask.known = entry.heard
      this.counts.asks++
      return this.options.provisioner.ask(entry.name)
    }, entry.name.module)
    void asked.then(
      (answer) => { if (answer) this.#answered(entry, answer) },
      (error) => { if (entry.ask === ask) this.#failed(entry, asMeshError(error)) }
    )
  }

  #answered (entry: Entry, answer: Answer): void {
    const ask = entry.ask as Ask
    const now = this.options.now()
    entry.ask = undefined
    // A word that came during the ask is another matter: the answer goes to those who wait, and one more ask follows. A value that
    // changes faster than it is asked would never be handed otherwise.
    const tooOld = [entry.revision, ask.known].some((known) => known !== undefined && isOlder(answer.revision, known))
    if (tooOld) {
      // An old answer long ago says nothing of this one: the time runs only while it is asked.
      if (entry.laggingSince === undefined || now - entry.laggedAt > limits.rewoundAfterMs) entry.laggingSince = now
      entry.laggedAt = now
      if (now - Math.max(entry.laggingSince, entry.newsAt) < limits.rewoundAfterMs) {
        this.#liveness.sign()
        // Whoever came later needs no more than the next try.
        entry.waiters.push(...entry.later.splice(0))
        this.#retry(entry, limits.reaskLaggingMs)
        return
      }
      // So long after the last word, what still stands is what the bucket holds: it was rewound (DESIGN section 4).
      this.counts.rewound++
      this.options.rewound?.(entry.name)
      entry.heard = answer.revision
    }
    entry.laggingSince = undefined
    entry.retryAt = undefined
    entry.pauseMs = 0
    entry.said = saidAgain(entry.said, answer)
    entry.revision = answer.revision
    entry.confirmedAt = now
    const certain = this.#hearing && ask.hearing === this.#generation
    entry.current = certain && !ask.overtaken
    entry.currentUntil = entry.current ? undefined : ask.startedAt
    if (certain) entry.staleSince = undefined
    // Nobody is left who would want a younger one where everybody went while it was asked.
    const wanted = entry.watched || entry.waitedFor
    for (const waiter of entry.waiters.splice(0)) waiter.resolve()
    entry.waiters = entry.later.splice(0)
    if ((ask.overtaken && wanted) || entry.waiters.length > 0 || (entry.watched && this.#hearing && !certain)) this.#start(entry)
    if (entry.watched && certain) this.#fanout.tell(entry)
    this.#settle(entry)
    this.#liveness.sign()
  }

  #failed (entry: Entry, error: MeshError): void {
    const ask = entry.ask as Ask
    entry.ask = undefined
    entry.lose(Math.max(entry.confirmedAt, ask.overtaken ? 0 : Math.min(this.#liveness.signAt, ask.startedAt)))
    for (const waiter of entry.waiters.splice(0)) waiter.reject(error)
    entry.waiters = entry.later.splice(0)
    if (entry.watched) this.#stale(entry)
    if (entry.waiters.length > 0) this.#start(entry)
    // A word that came meanwhile is the provisioner saying something: it is asked at once, not after a pause.
    else if (ask.overtaken && entry.watched) this.#start(entry)
    else if (entry.watched && this.#hearing && this.#liveness.asksOn(entry)) this.#retry(entry)
    if (error.problem === 'bad-answer') this.#liveness.sign()
    else if (error.problem === 'unavailable') this.#liveness.suspect(entry)
    this.#settle(entry)
  }

  #moved (entry: Entry, revision: Word['revision']): void {
    const now = this.options.now()
    entry.hear(revision, now)
    entry.lose(now)
    entry.pauseMs = 0
    if (entry.ask?.begun) entry.ask.overtaken = true
    else if (entry.watched || entry.waitedFor) this.#start(entry)
  }

  /** Asks again after a pause that grows, with jitter, from half of it to all of it. */
  #retry (entry: Entry, longest: number = limits.reaskLongestMs): void {
    entry.pauseMs = Math.min(Math.max(limits.reaskFirstMs, 2 * entry.pauseMs), longest)
    entry.retryAt = this.options.now() + entry.pauseMs * (0.5 + this.options.random() / 2)
    this.#attended.add(entry)
  }

  /** One entry's deadlines and pauses. */
  #attend (entry: Entry, now: number): void {
    for (const which of ['waiters', 'later'] as const) {
      const overdue = entry[which].filter(({ deadline }) => now >= deadline)
      if (overdue.length === 0) continue
      entry[which] = entry[which].filter(({ deadline }) => now < deadline)
      for (const waiter of overdue) waiter.reject(late())
    }
    // Answered too old for so long, it is not known current any more: watches are told, and gets ask.
    if (entry.laggingSince !== undefined && now - entry.laggingSince >= this.options.askTimeoutMs) {
      entry.lose(entry.confirmedAt)
      if (entry.watched) this.#stale(entry)
    }
    if (entry.retryAt !== undefined && now >= entry.retryAt) {
      if (entry.watched || entry.waitedFor) this.#start(entry)
      else {
        // Nobody wants to know how it ends: whoever comes next asks.
        entry.retryAt = undefined
        entry.lose(entry.confirmedAt)
      }
    }
    this.#settle(entry)
  }

  #stale (entry: Entry): void {
    if (entry.staleSince !== undefined) return
    entry.staleSince = entry.currentUntil ?? (entry.confirmedAt || this.options.now())
    this.#fanout.tell(entry)
  }

  // --- keeping ---

  /** Puts an entry where it belongs after something ended: attended, idle, or forgotten. */
  #settle (entry: Entry): void {
    if (!entry.waitedFor && entry.retryAt === undefined && !(entry.watched && entry.laggingSince !== undefined)) this.#attended.delete(entry)
    if (entry.watched || entry.waitedFor) return
    // An ask that still waits for its turn is not asked for nobody.
    if (entry.ask && !entry.ask.begun) entry.ask = undefined
    if (!entry.ask) this.#shelf.release(entry)
  }
}

const late = (): MeshError => new MeshError('timeout', 'the provisioner did not answer in time')
