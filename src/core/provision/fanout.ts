import { limits } from '../limits.js'
import type { Entry, Watcher } from './entry.js'

/** Runs something after other work had its turn: setImmediate, or a test's own queue. */
export type Defer = (work: () => void) => void

/**
 * Tells the watchers of an entry that it changed, in slices that leave room for other work. Each watcher looks at the entry as it
 * stands when its turn comes, so one that is told late is told the newest, and a change during a fan-out begins it again.
 */
export class Fanout {
  readonly #running = new Map<Entry, Iterator<Watcher>>()

  constructor (private readonly defer: Defer) {}

  tell (entry: Entry): void {
    if (entry.watchers.size <= limits.fanoutSlice && !this.#running.has(entry)) {
      for (const watcher of entry.watchers) watcher.sync(entry)
      return
    }
    const runs = this.#running.has(entry)
    this.#running.set(entry, entry.watchers.values())
    if (!runs) this.#slice(entry)
  }

  #slice (entry: Entry): void {
    const watchers = this.#running.get(entry) as Iterator<Watcher>
    for (let n = 0; n < limits.fanoutSlice; n++) {
      const { value, done } = watchers.next()
      if (done) {
        // A watcher may have begun the fan-out again from within: then the new round goes on.
        if (this.#running.get(entry) === watchers) { this.#running.delete(entry); return }
        break
      }
      value.sync(entry)
    }
    this.defer(() => this.#slice(entry))
  }
}
