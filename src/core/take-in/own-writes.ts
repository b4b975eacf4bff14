import { LRUCache } from 'lru-cache'
import { limits } from '../limits.js'
import type { BucketName, Entry, Store } from '../ports.js'

/** Remembers the latest writes of this process, so that it does not wake itself with them. */
export class OwnWrites {
  readonly #written = new LRUCache<string, true>({ max: limits.ownWrites })

  has (bucket: BucketName, { key, revision }: Entry): boolean { return this.#written.has(`${bucket} ${key} ${revision}`) }

  /** The same store; what goes through it is remembered. */
  around (store: Store): Store {
    return telling(store, (bucket, key, revision) => { this.#written.set(`${bucket} ${key} ${revision}`, true) })
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
    purge: async (bucket, key, previous) => tell(bucket, key, await store.purge(bucket, key, previous))
  }
}
