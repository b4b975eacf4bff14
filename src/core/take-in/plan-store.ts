/**
 * A store that writes nothing: what a run would write is kept beside what stands, and read back as if it stood. So a plan is
 * made by the very steps that carry it out (DESIGN section 6, the plan).
 */
import { Conflict } from '../errors.js'
import type { BucketName, Entry, Listing, Store } from '../ports.js'

/** One write that would be made. `before` is what stood, `text` what would stand; undefined where the key would be removed. */
export interface Planned { bucket: BucketName, key: string, before: Entry | undefined, text: string | undefined }

export class PlanStore implements Store {
  readonly #planned = new Map<string, Planned & { entry: Entry }>()
  /** Revisions that would be given out lie beyond all that a bucket has. */
  #next = 1_000_000_000_000

  constructor (private readonly store: Store) {}

  /** What would be written, in the order of bucket and key: the last state of each. */
  get planned (): Planned[] {
    return [...this.#planned].sort(([a], [b]) => a < b ? -1 : 1).map(([, { bucket, key, before, text }]) => ({ bucket, key, before, text }))
  }

  epoch (bucket: BucketName): Promise<number> { return this.store.epoch(bucket) }

  async read (bucket: BucketName, key: string): Promise<Entry | undefined> {
    return this.#planned.get(`${bucket} ${key}`)?.entry ?? this.store.read(bucket, key)
  }

  async readAll (bucket: BucketName, filter: string): Promise<Listing> {
    const stands = await this.store.readAll(bucket, filter)
    const found = Object.assign(new Map(stands), { epoch: stands.epoch })
    const tokens = filter.split('.')
    for (const { bucket: of, key, entry } of this.#planned.values()) {
      const parts = key.split('.')
      if (of === bucket && parts.length === tokens.length && tokens.every((token, i) => token === '*' || token === parts[i])) found.set(key, entry)
    }
    return found
  }

  write (bucket: BucketName, key: string, text: string, previous: number): Promise<number> { return this.#plan(bucket, key, text, previous) }

  purge (bucket: BucketName, key: string, previous: number): Promise<number> { return this.#plan(bucket, key, undefined, previous) }

  async erase (): Promise<void> { /* nothing is written, and nobody sees what it would remove */ }

  async #plan (bucket: BucketName, key: string, text: string | undefined, previous: number): Promise<number> {
    const name = `${bucket} ${key}`
    const stands = await this.read(bucket, key)
    if ((stands?.revision ?? 0) !== previous) throw new Conflict(`${bucket} ${key} was written by another`)
    const before = this.#planned.has(name) ? this.#planned.get(name)?.before : stands
    const entry = { key, revision: this.#next++, deleted: text === undefined, text: text ?? '' }
    this.#planned.set(name, { bucket, key, before: before?.deleted ? undefined : before, text, entry })
    return entry.revision
  }
}
