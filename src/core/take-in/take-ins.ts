/**
 * All take-ins of this process: one of a module at a time, a wake during one makes one more after it, and a bounded number of
 * modules at once (DESIGN section 3).
 */
import { MeshError } from '../errors.js'
import { Gate } from '../provision/gate.js'
import { limits } from '../limits.js'
import type { Brokers, MakeCredential, Store } from '../ports.js'
import { again, type Patience } from './again.js'
import { Applied } from './applied.js'
import { HolderRuns } from './holder-runs.js'
import { liveSteps } from './live-steps.js'
import { telling } from './own-writes.js'
import { planTakeIn, type PlannedTakeIn } from './plan.js'
import { keepRecord } from './record.js'
import { Shared } from './shared.js'
import { StepFailed, take, type TakeInResult } from './take.js'

export interface TakeInsOptions {
  /** The buckets as they can be reached now; throws the MeshError that says why they cannot. */
  store (): Store
  brokers: Brokers
  makeCredential: MakeCredential
  patience: Patience
  /** Told of each run as it ends: a line for the log. */
  ended (result: TakeInResult, failed: StepFailed | undefined, by: string[]): void
  /** A run that nobody waits for failed outside its steps. */
  trouble (module: string, error: unknown): void
}

/** Somebody who wants a take-in: who and why, for the record, and which plan alone they want carried out. */
interface Caller { by: string, ifMatch?: (etag: string) => boolean }

/** How a run ended, for all who shared it. */
interface Ended { result?: TakeInResult, failed?: StepFailed, planned?: PlannedTakeIn | undefined }

interface Lane { runs: Shared<Ended>, callers: Caller[] }

export interface RunOptions {
  /** Whether the plan with this ETag is the one to carry out; another is `plan-changed`. */
  ifMatch?: (etag: string) => boolean
  /** How long, in ms, to wait for a build that is not there yet. */
  waitMs?: number
}

export class TakeIns {
  readonly #lanes = new Map<string, Lane>()
  /** Those who wait for a build, by module: told of each run as it ends. */
  readonly #awaited = new Map<string, Set<(ended: Ended) => void>>()
  readonly #holder: HolderRuns
  readonly #applied: Applied
  readonly #gate = new Gate(limits.takeInsAtOnce, limits.takeInsQueued)
  #stopped = false

  constructor (private readonly options: TakeInsOptions) {
    this.#holder = new HolderRuns(options.makeCredential)
    this.#applied = new Applied(options.brokers)
  }

  /** Runs that are going on or wait for their turn. */
  get running (): number { return this.#lanes.size }

  /** What a take-in of the module would do now; undefined where it is not held. Rejects where the buckets cannot be reached. */
  async plan (module: string): Promise<PlannedTakeIn | undefined> {
    return planTakeIn(this.options.store(), module, this.options.patience)
  }

  /** Whether somebody waits for the module's build. */
  awaited (module: string): boolean { return this.#awaited.has(module) }

  /**
   * Takes a module in, for somebody who waits: a run that begins after this call. Rejects with StepFailed, with `plan-changed`, or
   * with a MeshError where the buckets cannot be reached. `by` says who and why, for the record.
   */
  async run (module: string, by: string, { ifMatch, waitMs = 0 }: RunOptions = {}): Promise<TakeInResult> {
    if (waitMs === 0) return resultOf(await this.#shared(module, { by, ifMatch }), ifMatch)
    const deadline = this.options.patience.now() + waitMs
    // Before the run, so that a key which comes while it looks is not missed.
    const awaiting = this.#await(module)
    try {
      let result = resultOf(await this.#shared(module, { by, ifMatch }), ifMatch)
      while (result.outcome === 'waiting') {
        const next = await awaiting.next(deadline - this.options.patience.now())
        if (!next) break
        result = resultOf(next, undefined)
      }
      return result
    } finally {
      awaiting.end()
    }
  }

  async #shared (module: string, caller: Caller): Promise<Ended> {
    if (this.#stopped) throw new MeshError('unavailable', 'this gateway is going down: ask another, or again in a moment')
    this.options.store()
    let lane = this.#lanes.get(module)
    if (!lane) this.#lanes.set(module, lane = { runs: new Shared(), callers: [] })
    const mine = lane
    // More of the same kind add nothing to a record; one that names a plan is asked about its own.
    if (caller.ifMatch || mine.callers.length < limits.wakesInRecord) mine.callers.push(caller)
    try {
      return await mine.runs.run(() => this.#gate.through(() => this.#one(module, mine.callers.splice(0))))
    } finally {
      // The last one out takes the lane away.
      if (mine.runs.idle && this.#lanes.get(module) === mine) this.#lanes.delete(module)
    }
  }

  #await (module: string): { next (ms: number): Promise<Ended | undefined>, end (): void } {
    let waiting = this.#awaited.get(module)
    if (!waiting) this.#awaited.set(module, waiting = new Set())
    const mine = waiting
    const ended: Ended[] = []
    let wake: (() => void) | undefined
    const listener = (one: Ended): void => { ended.push(one); wake?.() }
    mine.add(listener)
    return {
      next: async (ms) => {
        if (ended.length === 0 && ms > 0) {
          let timer: NodeJS.Timeout | undefined
          await new Promise<void>((resolve) => { wake = resolve; timer = setTimeout(resolve, ms) })
          clearTimeout(timer)
        }
        return ended.shift()
      },
      end: () => {
        mine.delete(listener)
        if (mine.size === 0 && this.#awaited.get(module) === mine) this.#awaited.delete(module)
      }
    }
  }

  /** The same for a key's write, which nobody waits for. */
  wake (module: string, why: string): void {
    this.#shared(module, { by: why }).catch((error: unknown) => {
      if (!(error instanceof MeshError)) this.options.trouble(module, error)
    })
  }

  /** Takes no new runs; resolves when those that began have ended. */
  async stop (): Promise<void> {
    this.#stopped = true
    await Promise.allSettled([...this.#lanes.values()].map(({ runs }) => runs.ended()))
  }

  async #one (module: string, callers: Caller[]): Promise<Ended> {
    let planned: PlannedTakeIn | undefined
    if (callers.some(({ ifMatch }) => ifMatch)) {
      const now = planned = await this.plan(module)
      // Nobody is left who wants what would be done now: nothing is done.
      if (now && callers.every(({ ifMatch }) => ifMatch && !ifMatch(now.etag))) return { planned }
    }
    const ended = { ...await this.#take(module, callers.map(({ by }) => by)), planned }
    for (const listener of this.#awaited.get(module) ?? []) listener(ended)
    return ended
  }

  async #take (module: string, by: string[]): Promise<Ended> {
    const { makeCredential, patience } = this.options
    let wrote = false
    const store = telling(this.options.store(), () => { wrote = true })
    const began = patience.now()
    const deadline = began + limits.takeInMs
    const steps = liveSteps({ store, makeCredential, patience, holder: this.#holder, applied: this.#applied })
    let failed: StepFailed | undefined
    let result: TakeInResult
    try {
      result = await take(module, steps, { now: patience.now })
    } catch (error) {
      if (!(error instanceof StepFailed)) throw error
      failed = error
      result = error.result
    }
    this.options.ended(result, failed, by)
    // A record that cannot be written undoes nothing: the run is what it is.
    const ended = { result, failed: failed !== undefined, wrote: wrote || result.composed.length > 0, from: steps.from(), by, at: patience.now() }
    let before = steps.recordBefore()
    await again(async () => {
      const known = before
      before = undefined // a try that failed reads it
      await keepRecord(store, ended, known)
    }, deadline, patience)
      .catch((error: unknown) => this.options.trouble(module, error))
    return { result, failed }
  }
}

/** What one of those who shared a run is told of it. */
function resultOf ({ result, failed, planned }: Ended, ifMatch: Caller['ifMatch']): TakeInResult {
  if (planned && ifMatch && !ifMatch(planned.etag)) {
    throw new MeshError('plan-changed', 'what would be done now is not the plan that If-Match names: look at the plan again', { members: { etag: planned.etag, plan: planned.plan } })
  }
  if (failed) throw failed
  return result as TakeInResult
}
