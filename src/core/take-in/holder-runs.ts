import { Conflict } from '../errors.js'
import type { Entry, MakeCredential, Store } from '../ports.js'
import { composeHolder, readTarget, type HolderComposed, type HolderTarget } from './holder.js'
import { Shared } from './shared.js'

/** The composes of the bus's node in this process: one at a time, shared by all runs that wait (DESIGN section 3.7). */
export class HolderRuns {
  readonly #runs = new Shared<HolderComposed | undefined>()
  /** What this process wrote there, or saw stand, last. */
  #last: { epoch: number, entry: Entry } | undefined
  /** Nobody else wrote it lately, so that it is tried without another read: a write over it would only lose. */
  #alone = false

  /** `ended` is told of each compose: whether it went through. */
  constructor (private readonly makeCredential: MakeCredential, private readonly ended: (through: boolean) => void = () => {}) {}

  /** The key of the broker module's composition, as far as this process knows. */
  get key (): string | undefined { return this.#last?.entry.key }

  /** A compose that begins after this call. `retried` runs it until its write holds. */
  run (store: Store, retried: <T>(work: () => Promise<T>) => Promise<T>): Promise<HolderComposed | undefined> {
    return this.#runs.run(async () => {
      try {
        const composed = await retried(() => this.#compose(store))
        this.ended(true)
        return composed
      } catch (error) {
        this.ended(false)
        throw error
      }
    })
  }

  async #compose (store: Store): Promise<HolderComposed | undefined> {
    const target = await this.#target(store)
    if (!target) return undefined
    try {
      const composed = await composeHolder(store, target, this.makeCredential)
      this.#last = composed && { epoch: composed.revision.epoch, entry: composed.entry }
      return composed
    } catch (error) {
      if (error instanceof Conflict) this.#alone = false
      throw error
    }
  }

  /** What is written is known before anything it is written from is read. */
  async #target (store: Store): Promise<HolderTarget | undefined> {
    const last = this.#last
    if (this.#alone && last) return { key: last.entry.key, ...last }
    const target = await readTarget(store, last?.entry.key)
    this.#alone = last !== undefined && target?.entry?.revision === last.entry.revision
    return target
  }
}
