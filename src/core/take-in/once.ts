import type { BucketName, Entry, Store } from '../ports.js'

/** What is read of a bucket's keys. */
export type Reading = Pick<Store, 'read'>

/** Reads each key once: what was found stands until this is thrown away, and so does what was written since by ourselves. */
export class Once implements Reading {
  readonly #read = new Map<string, { bucket: BucketName, key: string, found: Promise<Entry | undefined> }>()
  readonly #epochs = new Map<BucketName, Promise<number>>()

  constructor (private readonly store: Store) {}

  epoch (bucket: BucketName): Promise<number> {
    let epoch = this.#epochs.get(bucket)
    if (!epoch) this.#epochs.set(bucket, epoch = this.store.epoch(bucket))
    return epoch
  }

  read (bucket: BucketName, key: string): Promise<Entry | undefined> {
    const id = `${bucket} ${key}`
    let one = this.#read.get(id)
    if (!one) this.#read.set(id, one = { bucket, key, found: this.store.read(bucket, key) })
    return one.found
  }

  /** Takes an entry for the one that stands: it was written by compare-and-set just now, or came with a listing. */
  know (bucket: BucketName, entry: Entry): void {
    const { key } = entry
    this.#read.set(`${bucket} ${key}`, { bucket, key, found: Promise.resolve(entry) })
  }

  /** Whether any of the keys that were read in these buckets has another revision by now; of those of `except` nobody asks. */
  async moved (buckets: readonly BucketName[], except: readonly string[]): Promise<boolean> {
    const asked = [...this.#read.values()].filter(({ bucket, key }) => buckets.includes(bucket) && !except.includes(key))
    const moved = await Promise.all(asked.map(async ({ bucket, key, found }) => {
      const [was, is] = await Promise.all([found, this.store.read(bucket, key)])
      return was?.revision !== is?.revision
    }))
    return moved.includes(true)
  }
}
