import { LRUCache } from 'lru-cache'
import { limits } from '../limits.js'
import type { BucketName, Entry, Store } from '../ports.js'

/** Remembers the latest writes of this process, so that it does not wake itself with them. */
export class OwnWrites {
  readonly #written = new LRUCache<string, true>({ max: limits.ownWrites })
  /** Writes whose acknowledgement is still out: a bucket's follower may hear of a write before its writer does. */
  readonly #underway = new Set<{ bucket: BucketName, key: string, text: string }>()

  has (bucket: BucketName, { key, revision, text }: Entry): boolean {
    if (this.#written.has(`${bucket} ${key} ${revision}`)) return true
    return [...this.#underway].some((one) => one.bucket === bucket && one.key === key && one.text === text)
  }

  /** The same store; what goes through it is remembered. */
  around (store: Store): Store {
    const underway = async (bucket: BucketName, key: string, text: string, work: () => Promise<number>): Promise<number> => {
      const one = { bucket, key, text }
      this.#underway.add(one)
      try {
        return await work()
      } finally {
        this.#underway.delete(one)
      }
    }
    const told = telling(store, (bucket, key, revision) => { this.#written.set(`${bucket} ${key} ${revision}`, true) })
    return {
      ...told,
      write: (bucket, key, text, previous) => underway(bucket, key, text, () => told.write(bucket, key, text, previous)),
      purge: (bucket, key, previous) => underway(bucket, key, '', () => told.purge(bucket, key, previous))
    }
  }
}

/** The same store; `wrote` is told of each write and purge that was taken. */
export function telling (store: Store, wrote: (bucket: BucketName, key: string, revision: number) => void): Store {
  const tell = (bucket: BucketName, key: string, revision: number): number => {
    wrote(bucket, key, revision)
    return revision
  }
  return {
    epoch: (bucket) => store.epoch(bucket),
    read: (bucket, key) => store.read(bucket, key),
    readAll: (bucket, filter) => store.readAll(bucket, filter),
    write: async (bucket, key, text, previous) => tell(bucket, key, await store.write(bucket, key, text, previous)),
    purge: async (bucket, key, previous) => tell(bucket, key, await store.purge(bucket, key, previous)),
    erase: (bucket, key, upTo) => store.erase(bucket, key, upTo)
  }
}
