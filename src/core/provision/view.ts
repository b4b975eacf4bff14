/**
 * The coherent view of a node's values: many readers, one ask at a time, nothing old ever handed, never silently stale
 * (DESIGN section 2). Time comes from outside, by `now` and `tick`, so that tests can hold it still.
 */
import { LRUCache } from 'lru-cache'
import { MeshError } from '../errors.js'
import { limits } from '../limits.js'
import type { ValueName } from '../names.js'
import type { Answer, Hearing, Keys, Now, Provisioner, Word } from '../ports.js'
import { isOlder } from '../revision.js'
import { Entry, type Ask, type Waiter, type Watcher } from './entry.js'
import { Fanout, type Defer } from './fanout.js'
import { Gate } from './gate.js'
import { saidOf, type Said } from './said.js'

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
export interface ViewCounts { asks: number, hits: number, words: number, rewound: number, doubts: number }

export class View implements Hearing {
  readonly counts: ViewCounts = { asks: 0, hits: 0, words: 0, rewound: 0, doubts: 0 }
  readonly #modules = new Map<string, Map<string, Entry>>()
  readonly #idle: LRUCache<Entry, Said>
  readonly #gate = new Gate(limits.asksInFlight, limits.asksQueued)
  readonly #fanout: Fanout
  /** Entries with somebody waiting, with a pause running, or lagging: what `tick` looks at. */
  readonly #attended = new Set<Entry>()
  /** Those who wait for a list of keys. */
  readonly #listing = new Set<Waiter>()
  #hearing = false
  #generation = 0
  /** When the provisioner was last heard or answered. */
  #signAt = 0
  /** The provisioner is not known to live: all of the node is in doubt. */
  #doubt = false
  #probing = false
  #suspectedAt = -Infinity
  /** While all is in doubt, the one value that asks on for all of them. */
  #scout: Entry | undefined
  #purgedAt = 0
  #reviveAt: number | undefined

  constructor (private readonly options: ViewOptions) {
    this.#fanout = new Fanout(options.defer)
    this.#idle = new LRUCache<Entry, Said>({
      max: limits.unwatchedValues,
      maxSize: limits.unwatchedBytes,
      // An entry costs something even where its value is small.
      sizeCalculation: (said, { name }) => 512 + 2 * name.key.length + ('bytes' in said ? said.bytes.length : said.refused.length),
      ttl: limits.unwatchedMs,
      perf: { now: options.now },
      ttlResolution: 0,
      // Only a reader keeps a value: the probe's own asks would keep it for ever, and an idle gateway asks nobody.
      noUpdateTTL: true,
      updateAgeOnGet: true,
      dispose: (_, entry, reason) => { if (reason !== 'set' && reason !== 'delete') this.#forget(entry) }
    })
  }

  /** Whether changes are heard for certain, so that a value can be known current. */
  get hearing (): boolean { return this.#hearing }
  /** Whether the provisioner is known to live, as far as anybody looked. */
  get inDoubt (): boolean { return this.#doubt }
  /** Values in memory, watched or not. */
  get size (): number { let n = 0; for (const of of this.#modules.values()) n += of.size; return n }

  /** What is known current in memory; undefined where it has to be asked. */
  peek (name: ValueName): Entry | undefined {
    const entry = this.#find(name)
    if (!entry?.current) return undefined
    this.counts.hits++
    this.#idle.get(entry)
    return entry
  }

  /** What was last known of a value, current or not. */
  lastKnown (name: ValueName): Entry | undefined { return this.#find(name) }

  /**
   * Resolves with the value's entry once it was answered: from memory where it is known current, by one ask that all who wait
   * share where it is not. `noCache` joins only an ask that begins after this call. Rejects with `unavailable`, `timeout` (after
   * ASK_TIMEOUT_MS), `bad-answer` or `overloaded`.
   */
  async read (name: ValueName, { noCache = false } = {}): Promise<Entry> {
    const entry = this.#open(name)
    if (entry.current && !noCache) {
      this.counts.hits++
      this.#idle.get(entry)
      return entry
    }
    await new Promise<void>((resolve, reject) => {
      const waiter = { deadline: this.options.now() + this.options.askTimeoutMs, resolve, reject }
      const { ask } = entry
      const mayJoin = !ask?.begun || (!ask.overtaken && !noCache)
      entry[mayJoin ? 'waiters' : 'later'].push(waiter)
      this.#attended.add(entry)
      this.#idle.get(entry)
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
      })
      void asked.finally(() => this.#listing.delete(waiter)).then(resolve, reject)
    })
  }

  /** Tells `watcher` of each change from now on. The entry is kept current as long as it is watched. */
  attach (name: ValueName, watcher: Watcher): Entry {
    const entry = this.#open(name)
    entry.watchers.add(watcher)
    this.#idle.delete(entry)
    if (!this.#hearing || this.#doubt) this.#stale(entry)
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
    const now = this.options.now()
    this.#hearing = confirmed
    this.#generation++
    if (confirmed) {
      this.#signAt = now
      this.#doubt = false
      this.#scout = undefined
      this.#reviveAt = undefined
      for (const entry of this.#entries()) if (entry.watched) this.#start(entry)
      return
    }
    for (const entry of this.#entries()) {
      entry.lose(Math.max(entry.confirmedAt, this.#signAt))
      if (entry.watched) this.#stale(entry)
    }
  }

  word ({ module, kind, key, revision }: Word): void {
    this.counts.words++
    const of = this.#modules.get(module)
    if (of) {
      const moved = key === undefined
        ? [...of.values()].filter((entry) => entry.name.kind === kind)
        : [of.get(idOf(kind, key))].filter((entry) => entry !== undefined)
      for (const entry of moved) this.#moved(entry, revision)
    }
    this.#sign()
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
    if (this.#reviveAt !== undefined && now >= this.#reviveAt) {
      this.#reviveAt = undefined
      for (const entry of this.#entries()) if (entry.watched && !entry.current) this.#start(entry)
    }
    if (now - this.#purgedAt >= 1000) {
      this.#purgedAt = now
      this.#idle.purgeStale()
    }
    if (this.#doubt && this.#hearing) this.#sendScout()
    if (this.#hearing && !this.#doubt && !this.#probing && now - this.#signAt >= limits.probeAfterMs) this.#probe()
  }

  // --- asking ---

  #start (entry: Entry): void {
    if (entry.ask) return
    entry.retryAt = undefined
    const ask: Ask = entry.ask = { startedAt: 0, hearing: 0, overtaken: false, begun: false }
    const asked = this.#gate.through(async () => {
      if (entry.ask !== ask) return undefined
      ask.begun = true
      ask.startedAt = this.options.now()
      ask.hearing = this.#generation
      this.counts.asks++
      return this.options.provisioner.ask(entry.name)
    })
    void asked.then(
      (answer) => { if (answer) this.#answered(entry, answer) },
      (error) => { if (entry.ask === ask) this.#failed(entry, asMeshError(error)) }
    )
  }

  #answered (entry: Entry, answer: Answer): void {
    const ask = entry.ask as Ask
    const now = this.options.now()
    entry.ask = undefined
    const tooOld = [entry.revision, entry.heard].some((known) => known !== undefined && isOlder(answer.revision, known))
    if (tooOld) {
      // An old answer long ago says nothing of this one: the time runs only while it is asked.
      if (entry.laggingSince === undefined || now - entry.laggedAt > limits.rewoundAfterMs) entry.laggingSince = now
      entry.laggedAt = now
      if (now - Math.max(entry.laggingSince, entry.newsAt) < limits.rewoundAfterMs) {
        this.#sign()
        // Whoever came later needs no more than the next try.
        entry.waiters.push(...entry.later.splice(0))
        this.#retry(entry, now, limits.reaskLaggingMs)
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
    entry.said = sameOr(entry.said, answer)
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
    this.#sign()
  }

  #failed (entry: Entry, error: MeshError): void {
    const ask = entry.ask as Ask
    const now = this.options.now()
    entry.ask = undefined
    entry.lose(Math.max(entry.confirmedAt, ask.overtaken ? 0 : Math.min(this.#signAt, ask.startedAt)))
    for (const waiter of entry.waiters.splice(0)) waiter.reject(error)
    entry.waiters = entry.later.splice(0)
    if (entry.watched) this.#stale(entry)
    if (entry.waiters.length > 0) this.#start(entry)
    // A word that came meanwhile is the provisioner saying something: it is asked at once, not after a pause.
    else if (ask.overtaken && entry.watched) this.#start(entry)
    else if (entry.watched && this.#hearing && (!this.#doubt || entry === this.#scout)) this.#retry(entry, now)
    if (error.problem === 'bad-answer') this.#sign()
    else if (error.problem === 'unavailable') this.#suspect(entry, now)
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
  #retry (entry: Entry, now: number, longest: number = limits.reaskLongestMs): void {
    entry.pauseMs = Math.min(Math.max(limits.reaskFirstMs, 2 * entry.pauseMs), longest)
    entry.retryAt = now + entry.pauseMs * (0.5 + this.options.random() / 2)
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

  // --- whether the provisioner lives ---

  /** The provisioner was heard or answered. */
  #sign (): void {
    const now = this.options.now()
    this.#signAt = now
    if (!this.#doubt) return
    this.#doubt = false
    this.#scout = undefined
    // One that comes up says a word for each of its modules: a moment later each value is asked once, not twice.
    this.#reviveAt = now + limits.viewTickMs
  }

  /** Nobody answered one ask: perhaps that value alone, perhaps nobody is there. One other value tells. */
  #suspect (failed: Entry, now: number): void {
    if (!this.#hearing || this.#doubt || this.#probing || now - this.#suspectedAt < 1000) return
    this.#suspectedAt = now
    this.#probe(failed)
  }

  /** Asks the value confirmed longest ago; no answer puts all of the node in doubt. */
  #probe (except?: Entry): void {
    const entry = this.#oldest((held) => held !== except && (held.current || held.watched))
    if (!entry) return
    this.#probing = true
    const done = (): void => { this.#probing = false }
    const lost = (error: unknown): void => {
      done()
      if (asMeshError(error).problem !== 'bad-answer' && asMeshError(error).problem !== 'overloaded') this.#lostSight()
    }
    // It joins an ask that is in flight: that one tells as well.
    const waiter = { deadline: Infinity, resolve: done, reject: lost }
    entry.waiters.push(waiter)
    if (entry.laggingSince === undefined || entry.retryAt === undefined) this.#start(entry)
  }

  #lostSight (): void {
    if (this.#doubt || !this.#hearing) return
    this.#doubt = true
    this.counts.doubts++
    for (const entry of this.#entries()) {
      entry.lose(Math.max(entry.confirmedAt, this.#signAt))
      if (entry.watched) this.#stale(entry)
    }
    this.#sendScout()
  }

  /** One value asks on for all of them, with growing pauses; its answer, or any word, brings the others back. */
  #sendScout (): void {
    if (this.#scout?.watched && (this.#scout.ask || this.#scout.retryAt !== undefined)) return
    this.#scout = this.#oldest((entry) => entry.watched)
    if (this.#scout && !this.#scout.ask) this.#retry(this.#scout, this.options.now())
  }

  /** The entry that was confirmed longest ago among those that count. */
  #oldest (counts: (entry: Entry) => boolean): Entry | undefined {
    let oldest: Entry | undefined
    for (const entry of this.#entries()) {
      if (counts(entry) && (!oldest || entry.confirmedAt < oldest.confirmedAt)) oldest = entry
    }
    return oldest
  }

  #stale (entry: Entry): void {
    if (entry.staleSince !== undefined) return
    entry.staleSince = entry.currentUntil ?? (entry.confirmedAt || this.options.now())
    this.#fanout.tell(entry)
  }

  // --- keeping ---

  * #entries (): Iterable<Entry> { for (const of of this.#modules.values()) yield * of.values() }

  #find ({ module, kind, key }: ValueName): Entry | undefined { return this.#modules.get(module)?.get(idOf(kind, key)) }

  #open (name: ValueName): Entry {
    let of = this.#modules.get(name.module)
    if (!of) this.#modules.set(name.module, of = new Map())
    const id = idOf(name.kind, name.key)
    let entry = of.get(id)
    if (!entry) of.set(id, entry = new Entry(name))
    return entry
  }

  /** Puts an entry where it belongs after something ended: attended, idle, or forgotten. */
  #settle (entry: Entry): void {
    if (!entry.waitedFor && entry.retryAt === undefined && !(entry.watched && entry.laggingSince !== undefined)) this.#attended.delete(entry)
    if (entry.watched || entry.waitedFor) return
    // An ask that still waits for its turn is not asked for nobody.
    if (entry.ask && !entry.ask.begun) entry.ask = undefined
    if (entry.ask) return
    if (entry.said !== undefined && this.#idle.set(entry, entry.said).has(entry)) return
    // Never answered, larger than all of the room, or kept long enough.
    this.#idle.delete(entry)
    this.#forget(entry)
  }

  #forget (entry: Entry): void {
    if (entry.watched || entry.ask || entry.waitedFor) return
    this.#attended.delete(entry)
    const { module, kind, key } = entry.name
    const of = this.#modules.get(module)
    if (of?.get(idOf(kind, key)) !== entry) return
    of.delete(idOf(kind, key))
    if (of.size === 0) this.#modules.delete(module)
  }
}

// A kind holds no blank, so no two names share an id.
const idOf = (kind: string, key: string): string => `${kind} ${key}`

/** The same object where the answer says the same again, so that whoever holds it need not compare. */
function sameOr (before: Said | undefined, answer: Answer): Said {
  const said = saidOf(answer)
  // Two refusals with one reason are no change to a watch, but a get answers with the present one's code.
  return before && said.id === before.id && ('code' in said ? said.code : 0) === ('code' in before ? before.code : 0) ? before : said
}

const late = (): MeshError => new MeshError('timeout', 'the provisioner did not answer in time')

const asMeshError = (error: unknown): MeshError =>
  error instanceof MeshError ? error : new MeshError('internal', 'the gateway failed to ask', { cause: error })
