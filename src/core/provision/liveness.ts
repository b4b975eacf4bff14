/**
 * Whether the node's provisioner is known to live (DESIGN section 2): silence is probed, nobody answering puts all of the node in
 * doubt, and one value asks on for all of them until it is heard again.
 */
import { MeshError } from '../errors.js'
import { limits } from '../limits.js'
import type { Now } from '../ports.js'
import type { Entry } from './entry.js'

/** What is needed of the view. */
export interface Held {
  entries (): Iterable<Entry>
  /** Asks, unless it is being asked. */
  start (entry: Entry): void
  /** Asks after a pause that grows. */
  retry (entry: Entry): void
  /** Its watches are told that it cannot be kept current. */
  stale (entry: Entry): void
}

export class Liveness {
  /** How often all of the node came into doubt. */
  doubts = 0
  /** When the provisioner was last heard or answered, in ms. */
  signAt = 0
  #hearing = false
  #doubt = false
  #probing = false
  #suspectedAt = -Infinity
  /** While all is in doubt, the one value that asks on for all of them. */
  #scout: Entry | undefined
  #reviveAt: number | undefined

  constructor (private readonly held: Held, private readonly now: Now) {}

  /** The provisioner is not known to live, and somebody looked. */
  get inDoubt (): boolean { return this.#doubt }

  /** While all is in doubt one value alone asks again by itself. */
  asksOn (entry: Entry): boolean { return !this.#doubt || entry === this.#scout }

  /** Changes are heard from now on, or no longer: then nothing is known of the provisioner either way. */
  hears (confirmed: boolean): void {
    this.#hearing = confirmed
    if (!confirmed) return
    this.signAt = this.now()
    this.#doubt = false
    this.#scout = undefined
    this.#reviveAt = undefined
  }

  /** The provisioner was heard or answered. */
  sign (): void {
    this.signAt = this.now()
    if (!this.#doubt) return
    this.#doubt = false
    this.#scout = undefined
    // One that comes up says a word for each of its modules: a moment later each value is asked once, not twice.
    this.#reviveAt = this.signAt + limits.viewTickMs
  }

  /** Nobody answered one ask: perhaps that value alone, perhaps nobody is there. One other value tells. */
  suspect (failed: Entry): void {
    const now = this.now()
    if (!this.#hearing || this.#doubt || this.#probing || now - this.#suspectedAt < limits.suspectMs) return
    this.#suspectedAt = now
    this.#probe(failed)
  }

  tick (now: number): void {
    if (this.#reviveAt !== undefined && now >= this.#reviveAt) {
      this.#reviveAt = undefined
      for (const entry of this.held.entries()) if (entry.watched && !entry.current) this.held.start(entry)
    }
    if (!this.#hearing) return
    if (this.#doubt) this.#sendScout()
    else if (!this.#probing && now - this.signAt >= limits.probeAfterMs) this.#probe()
  }

  /** Asks the value confirmed longest ago; no answer puts all of the node in doubt. */
  #probe (except?: Entry): void {
    const entry = this.#oldest((held) => held !== except && (held.current || held.watched))
    if (!entry) return
    this.#probing = true
    const done = (): void => { this.#probing = false }
    const lost = (error: MeshError): void => {
      done()
      if (error.problem === 'unavailable' || error.problem === 'timeout') this.#lostSight()
    }
    // It joins an ask that is in flight: that one tells as well.
    entry.waiters.push({ deadline: Infinity, resolve: done, reject: lost })
    if (entry.laggingSince === undefined || entry.retryAt === undefined) this.held.start(entry)
  }

  #lostSight (): void {
    if (this.#doubt || !this.#hearing) return
    this.#doubt = true
    this.doubts++
    for (const entry of this.held.entries()) {
      entry.lose(Math.max(entry.confirmedAt, this.signAt))
      if (entry.watched) this.held.stale(entry)
    }
    this.#sendScout()
  }

  /** One value asks on for all of them, with growing pauses; its answer, or any word, brings the others back. */
  #sendScout (): void {
    if (this.#scout?.watched && (this.#scout.ask || this.#scout.retryAt !== undefined)) return
    this.#scout = this.#oldest((entry) => entry.watched)
    if (this.#scout && !this.#scout.ask) this.held.retry(this.#scout)
  }

  /** The entry that was confirmed longest ago among those that count. */
  #oldest (counts: (entry: Entry) => boolean): Entry | undefined {
    let oldest: Entry | undefined
    for (const entry of this.held.entries()) {
      if (counts(entry) && (!oldest || entry.confirmedAt < oldest.confirmedAt)) oldest = entry
    }
    return oldest
  }
}
