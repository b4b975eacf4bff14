import type { Entry } from './entry.js'

/** What a reader is to be told next: what is said of the value now, that it may be out of date, or that it is current again unchanged. */
export type Due = 'said' | 'stale' | 'live' | undefined

/**
 * A reader's side of one value, on any transport: what it was handed last and whether it believes that to be current. From
 * the entry alone it derives what is due, so a reader that was skipped, slow or told twice never sees a value twice in a row,
 * an old one after a new one, or silence where it should know (DESIGN section 2).
 */
export class Reader {
  /** The id of what was handed last. */
  handed: string | undefined
  live = true

  /** What is due now; the reader counts as told. */
  due (entry: Entry): Due {
    if (entry.staleSince !== undefined) {
      if (!this.live) return undefined
      this.live = false
      return 'stale'
    }
    if (entry.said === undefined) return undefined
    if (entry.said.id !== this.handed) {
      this.handed = entry.said.id
      this.live = true
      return 'said'
    }
    if (this.live) return undefined
    this.live = true
    return 'live'
  }
}
