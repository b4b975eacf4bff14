import type { Entry, MakeCredential, Store } from '../ports.js'
import { composeHolder, type HolderComposed, type HolderTarget } from './holder.js'
import { Shared } from './shared.js'

/** The composes of the bus's node in this process: one at a time, shared by all runs that wait (DESIGN section 3.7). */
export class HolderRuns {
  readonly #runs = new Shared<HolderComposed | undefined>()
  /** What this process wrote or saw stand there last. */
  #last: Entry | undefined

  constructor (private readonly makeCredential: MakeCredential) {}

  /**
   * A compose that begins after this call. `target` is what the caller has seen of it; the first try begins with that, or with
   * what is known here and is younger. `retried` runs it until its write holds.
   */
  run (store: Store, target: HolderTarget | undefined, retried: <T>(work: () => Promise<T>) => Promise<T>): Promise<HolderComposed | undefined> {
    return this.#runs.run(() => {
      let known = this.#youngest(target)
      return retried(async () => {
        const from = known
        known = undefined // a try that failed reads it anew
        const composed = await composeHolder(store, from, this.makeCredential)
        this.#last = composed?.entry
        return composed
      })
    })
  }

  #youngest (target: HolderTarget | undefined): HolderTarget | undefined {
    const last = this.#last
    return target && last?.key === target.key && last.revision > (target.entry?.revision ?? 0) ? { key: target.key, entry: last } : target
  }
}
