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
import { Awaited } from './awaited.js'
import { HeldUp } from './held-up.js'
import { HolderRuns } from './holder-runs.js'
import { liveSteps } from './live-steps.js'
import { telling } from './own-writes.js'
import { planTakeIn, type PlannedTakeIn } from './plan.js'
import { OnlyPlanned, type NotPlanned } from './only-planned.js'
import { keepRecord } from './record.js'
import { Shared } from './shared.js'
import { StepFailed, take, type StepDone, type TakeInResult } from './take.js'

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
  /** A module that failed at the bus's node can go through now; left out, nobody is woken. */
  released? (module: string, why: string): void
}

type Progress = (step: StepDone) => void

/** Somebody who wants a take-in: who and why, for the record, which plan alone they want carried out, and who is told of each step. */
interface Caller { by: string, ifMatch?: RunOptions['ifMatch'], progress?: Progress | undefined }

/** How a run ended, for all who shared it. */
interface Ended { result?: TakeInResult, failed?: MeshError, planned?: PlannedTakeIn | undefined }

interface Lane { runs: Shared<Ended>, callers: Caller[] }

export interface RunOptions {
  /** Whether the plan with this ETag is the one to carry out; another is `plan-changed`. */
  ifMatch?: ((etag: string) => boolean) | undefined
  /** Told of each step as it ends, of all runs that the call waits for. */
  progress?: Progress
  /** How long, in ms, to wait for a build that is not there yet. */
  waitMs?: number
}

export class TakeIns {
  readonly #lanes = new Map<string, Lane>()
  readonly #awaited = new Awaited<Ended>()
  /** Who is told of the steps of later runs, by module: those who wait for its build. */
  readonly #watching = new Map<string, Set<Progress>>()
  readonly #holder: HolderRuns
  readonly #applied: Applied
  readonly #heldUp: HeldUp
  readonly #gate = new Gate(limits.takeInsAtOnce, limits.takeInsQueued)
  #stopped = false

  constructor (private readonly options: TakeInsOptions) {
    this.#heldUp = new HeldUp((module) => options.released?.(module, "the bus's node goes through again"))
    this.#holder = this.#holderRuns()
    this.#applied = new Applied(options.brokers, (server, is) => this.#heldUp.went(server, is))
  }

  #holderRuns (): HolderRuns { return new HolderRuns(this.options.makeCredential, (through) => this.#heldUp.went('', through)) }

  /** Runs that are going on or wait for their turn. */
  get running (): number { return this.#lanes.size }

  /** What a take-in of the module would do now; undefined where it is not held. Rejects where the buckets cannot be reached. */
  async plan (module: string): Promise<PlannedTakeIn | undefined> {
    return planTakeIn(this.options.store(), module, this.options.patience)
  }

  /** The buckets are not those that they were: which server runs with which users is asked again. */
  forget (): void { this.#applied.forget() }

  /** Whether somebody waits for the module's build. */
  awaited (module: string): boolean { return this.#awaited.has(module) }

  /**
   * Takes a module in, for somebody who waits: a run that begins after this call. Rejects with StepFailed, with `plan-changed`, or
   * with a MeshError where the buckets cannot be reached. `by` says who and why, for the record.
   */
  async run (module: string, by: string, { ifMatch, progress, waitMs = 0 }: RunOptions = {}): Promise<TakeInResult> {
    const caller = { by, ifMatch, progress }
    if (waitMs === 0) return resultOf(await this.#shared(module, caller), ifMatch)
    const deadline = this.options.patience.now() + waitMs
    // Before the run, so that a key which comes while it looks is not missed.
    const waiter = this.#awaited.wait(module)
    let unwatch: (() => void) | undefined
    try {
      let result = resultOf(await this.#shared(module, caller), ifMatch)
      while (result.outcome === 'waiting') {
        unwatch ??= progress && this.#watch(module, progress)
        const next = await waiter.next(deadline - this.options.patience.now())
        if (!next) break
        // A run that was refused its plan was somebody else's.
        if (next.result || next.failed instanceof StepFailed) result = resultOf(next, undefined)
      }
      return result
    } finally {
      waiter.end()
      unwatch?.()
    }
  }

  #watch (module: string, progress: Progress): () => void {
    const watching = this.#watching.get(module) ?? new Set()
    this.#watching.set(module, watching.add(progress))
    return () => {
      watching.delete(progress)
      if (watching.size === 0 && this.#watching.get(module) === watching) this.#watching.delete(module)
    }
  }

  async #shared (module: string, caller: Caller): Promise<Ended> {
    if (this.#stopped) throw new MeshError('unavailable', 'this gateway is going down: ask another, or again in a moment')
    this.options.store()
    let lane = this.#lanes.get(module)
    if (!lane) this.#lanes.set(module, lane = { runs: new Shared(), callers: [] })
    const mine = lane
    // More of the same kind add nothing to a record. One that names a plan is asked about its own, and however many do, one that names
    // none makes it an ordinary run.
    const isPlain = (one: Caller): boolean => !one.ifMatch
    if (!isPlain(caller) || caller.progress || mine.callers.filter(isPlain).length < limits.wakesInRecord) mine.callers.push(caller)
    try {
      return await mine.runs.run(() => this.#gate.through(() => this.#one(module, mine.callers.splice(0))))
    } finally {
      // The last one out takes the lane away.
      if (mine.runs.idle && this.#lanes.get(module) === mine) this.#lanes.delete(module)
    }
  }

  /** The same for a key's write, which nobody waits for. */
  wake (module: string, why: string): void {
    this.#shared(module, { by: why }).catch((error: unknown) => {
      if (!(error instanceof MeshError)) this.options.trouble(module, error)
    })
  }

  /** Takes no new runs, and lets nobody wait for a build any longer; resolves when the runs that began have ended. */
  async stop (): Promise<void> {
    this.#stopped = true
    this.#awaited.stop()
    await Promise.allSettled([...this.#lanes.values()].map(({ runs }) => runs.ended()))
  }

  async #one (module: string, callers: Caller[]): Promise<Ended> {
    let planned: PlannedTakeIn | undefined
    let only: OnlyPlanned | undefined
    if (callers.some(({ ifMatch }) => ifMatch)) {
      const now = planned = await this.plan(module)
      // Nobody is left who wants what would be done now: nothing is done.
      if (now && callers.every(({ ifMatch }) => ifMatch && !ifMatch(now.etag))) return { planned }
      // Where somebody asked for whatever is to be done, it is an ordinary run.
      if (now && callers.every(({ ifMatch }) => ifMatch)) only = new OnlyPlanned(now.writes)
    }
    const ended = { ...await this.#take(module, callers, only), planned }
    this.#awaited.ended(module, ended)
    return ended
  }

  async #take (module: string, callers: Caller[], only: OnlyPlanned | undefined): Promise<Ended> {
    const { makeCredential, patience } = this.options
    const by = callers.map(({ by }) => by)
    let wrote = false
    const taken = telling(this.options.store(), () => { wrote = true })
    const store = only ? only.around(taken) : taken
    const deadline = patience.now() + limits.takeInMs
    // A run that keeps to a plan shares no compose of the bus's node: the others would fail by its plan.
    const holder = only ? this.#holderRuns() : this.#holder
    const { mends } = this.#heldUp
    const steps = liveSteps({ store, makeCredential, patience, holder, applied: this.#applied })
    const progress = (step: StepDone): void => {
      for (const tell of new Set([...callers.map(({ progress }) => progress), ...this.#watching.get(module) ?? []])) tell?.(step)
    }
    let failed: StepFailed | undefined
    let result: TakeInResult
    try {
      result = await take(module, steps, { now: patience.now, progress })
    } catch (error) {
      if (!(error instanceof StepFailed)) throw error
      failed = error
      result = error.result
    }
    this.#heldUp.ended(module, failed?.step === 'busHolder' && !only?.refused, mends)
    this.options.ended(result, failed, by)
    // A run that was refused its first write did nothing.
    if (only?.refused && !wrote) return { result, failed: await this.#planChanged(module, only.refused, result) }
    const ended = { result, failed: failed !== undefined, wrote: wrote || result.composed.length > 0, from: steps.from(), by, at: patience.now() }
    let before = steps.recordBefore()
    // A record that cannot be written undoes nothing: the run is what it is.
    await again(async () => {
      const known = before
      before = undefined // a try that failed reads it
      await keepRecord(store, ended, known)
    }, deadline, patience)
      .catch((error: unknown) => this.options.trouble(module, error))
    return { result, failed: only?.refused ? await this.#planChanged(module, only.refused, result) : failed }
  }

  /** The plan was left: what differs, what was done until then, and what would be done now. */
  async #planChanged (module: string, differs: NotPlanned, { steps, registered, composed }: TakeInResult): Promise<MeshError> {
    const now = await this.plan(module).catch(() => undefined)
    const done = steps.filter(({ error }) => error === undefined).map(({ step }) => step)
    const what = `${differs.bucket} ${differs.key} would be written, which is ${differs.why}`
    return new MeshError('plan-changed', `${what}: nothing was written after that; look at the plan again`, {
      members: { differs, done, registered, composed, ...(now ? { etag: now.etag, plan: now.plan } : {}) }
    })
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
