/** Buckets in memory: the second implementation of core's Store, for tests that need no bus. */
import { Conflict } from '../../src/core/errors.js'
import type { BucketName, Entry, Listing, Store } from '../../src/core/ports.js'

/** A write as it comes in: `previous` is the revision the writer expects. */
export interface Writing { bucket: BucketName, key: string, text: string, deleted: boolean, previous: number }

interface Bucket { epoch: number, last: number, keys: Map<string, Entry[]> }

const matches = (filter: string, key: string): boolean => {
  const [wanted, given] = [filter.split('.'), key.split('.')]
  return wanted.length === given.length && wanted.every((token, at) => token === '*' || token === given[at])
}

export class MemoryStore implements Store {
  /** The writes that were taken, in their order. */
  readonly writes: Writing[] = []
  /** Called before and after each write is taken; may throw what the bus might, or what a crash looks like. */
  fault: ((writing: Writing, when: 'before' | 'after') => void) | undefined
  /** Awaited before each read and write, so that others come between. */
  pace: (() => Promise<void>) | undefined
  /** Told of each write that was taken, a turn of the event loop later and in order, as followers of a bucket are. */
  readonly followers: Array<(bucket: BucketName, entry: Entry) => void> = []
  readonly #buckets = new Map<BucketName, Bucket>()
  #created = 1_000_000

  /** What is stored under a key, the newest last, markers among it. */
  history (bucket: BucketName, key: string): Entry[] { return [...this.#of(bucket).keys.get(key) ?? []] }

  /** Deletes a bucket; it is there again, empty and of a later epoch. */
  remake (bucket: BucketName): void { this.#buckets.delete(bucket) }

  /** As somebody who asks no revision. */
  async put (bucket: BucketName, key: string, document: unknown): Promise<number> {
    return this.#take({ bucket, key, text: JSON.stringify(document), deleted: false, previous: 0 })
  }

  async document (bucket: BucketName, key: string): Promise<unknown> {
    const entry = await this.read(bucket, key)
    return entry && !entry.deleted ? JSON.parse(entry.text) : undefined
  }

  async epoch (bucket: BucketName): Promise<number> { return this.#of(bucket).epoch }

  async read (bucket: BucketName, key: string): Promise<Entry | undefined> {
    await this.pace?.()
    return this.#of(bucket).keys.get(key)?.at(-1)
  }

  async readAll (bucket: BucketName, filter: string): Promise<Listing> {
    await this.pace?.()
    const keys = [...this.#of(bucket).keys.keys()].filter((key) => matches(filter, key)).sort()
    // As on a bus: first which keys there are, then each by itself.
    const found = await Promise.all(keys.map((key) => this.read(bucket, key)))
    return Object.assign(new Map(found.flatMap((entry) => entry ? [[entry.key, entry] as const] : [])), { epoch: this.#of(bucket).epoch })
  }

  async write (bucket: BucketName, key: string, text: string, previous: number): Promise<number> {
    return this.#write({ bucket, key, text, deleted: false, previous })
  }

  async purge (bucket: BucketName, key: string, previous: number): Promise<number> {
    return this.#write({ bucket, key, text: '', deleted: true, previous })
  }

  async erase (bucket: BucketName, key: string, upTo: number): Promise<void> {
    await this.pace?.()
    const { keys } = this.#of(bucket)
    const left = (keys.get(key) ?? []).filter(({ revision }) => revision > upTo)
    if (left.length > 0) keys.set(key, left)
    else keys.delete(key)
  }

  async #write (writing: Writing): Promise<number> {
    await this.pace?.()
    const { bucket, key, previous } = writing
    this.fault?.(writing, 'before')
    if ((this.#of(bucket).keys.get(key)?.at(-1)?.revision ?? 0) !== previous) throw new Conflict(`${bucket} ${key} was written by another`)
    this.writes.push(writing)
    const revision = this.#take(writing)
    this.fault?.(writing, 'after')
    return revision
  }

  #take ({ bucket, key, text, deleted }: Writing): number {
    const of = this.#of(bucket)
    const entry = { key, revision: ++of.last, deleted, text }
    of.keys.set(key, deleted ? [entry] : [...of.keys.get(key) ?? [], entry])
    for (const follow of this.followers) setImmediate(() => follow(bucket, entry))
    return entry.revision
  }

  #of (bucket: BucketName): Bucket {
    let found = this.#buckets.get(bucket)
    if (!found) this.#buckets.set(bucket, found = { epoch: ++this.#created, last: 0, keys: new Map() })
    return found
  }
}
