/**
 * All take-ins of this process: one of a module at a time, a wake during one makes one more after it, and a bounded number of
 * modules at once (DESIGN section 3).
 */
import { MeshError } from '../errors.js'
import { Gate } from '../provision/gate.js'
import { limits } from '../limits.js'
import type { Brokers, MakeCredential, Store } from '../ports.js'
import { again, type Patience } from './again.js'
import type { HolderComposed } from './holder.js'
import { Inventory } from './inventory.js'
import { liveSteps } from './live-steps.js'
import { telling } from './own-writes.js'
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

interface Lane { runs: Shared<TakeInResult>, by: string[] }

export class TakeIns {
  readonly #lanes = new Map<string, Lane>()
  readonly #holder = new Shared<HolderComposed | undefined>()
  readonly #gate = new Gate(limits.takeInsAtOnce, limits.takeInsQueued)
  #stopped = false

  constructor (private readonly options: TakeInsOptions) {}

  /** Runs that are going on or wait for their turn. */
  get running (): number { return this.#lanes.size }

  /**
   * Takes a module in, for somebody who waits: a run that begins after this call. Rejects with StepFailed, or a MeshError where
   * the buckets cannot be reached or the module is not held. `by` says who and why, for the record.
   */
  async run (module: string, by: string): Promise<TakeInResult> {
    if (this.#stopped) throw new MeshError('unavailable', 'this gateway is going down: ask another, or again in a moment')
    this.options.store()
    let lane = this.#lanes.get(module)
    if (!lane) this.#lanes.set(module, lane = { runs: new Shared(), by: [] })
    const mine = lane
    if (mine.by.length < limits.wakesInRecord) mine.by.push(by)
    try {
      return await mine.runs.run(() => this.#gate.through(() => this.#one(module, mine.by.splice(0))))
    } finally {
      // The last one out takes the lane away.
      if (mine.runs.idle && this.#lanes.get(module) === mine) this.#lanes.delete(module)
    }
  }

  /** The same for a key's write, which nobody waits for. */
  wake (module: string, why: string): void {
    this.run(module, why).catch((error: unknown) => {
      if (!(error instanceof MeshError)) this.options.trouble(module, error)
    })
  }

  /** Takes no new runs; resolves when those that began have ended. */
  async stop (): Promise<void> {
    this.#stopped = true
    await Promise.allSettled([...this.#lanes.values()].map(({ runs }) => runs.ended()))
  }

  async #one (module: string, by: string[]): Promise<TakeInResult> {
    const { brokers, makeCredential, patience } = this.options
    let wrote = false
    const store = telling(this.options.store(), () => { wrote = true })
    const began = patience.now()
    const deadline = began + limits.takeInMs
    const steps = liveSteps({ store, brokers, makeCredential, patience, holder: this.#holder })
    const from = await new Inventory(store).module(module).then(({ document }) => document?.registered?.fp, () => undefined)
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
    const ended = { result, failed: failed !== undefined, wrote: wrote || result.composed.length > 0, from, by, at: patience.now() }
    await again(() => keepRecord(store, ended), deadline, patience)
      .catch((error: unknown) => this.options.trouble(module, error))
    if (failed) throw failed
    return result
  }
}
