/** What the buckets hold, as their followers were told: what those who look at the mesh's state are answered from. */
import type { BucketName, Entry } from '../ports.js'

const noEntries: ReadonlyMap<string, Entry> = new Map()

/** Entries of a bucket by one token of their keys, and in there by what is left of the key. */
class Index {
  readonly #by = new Map<string, Map<string, Entry>>()

  of (token: string): ReadonlyMap<string, Entry> { return this.#by.get(token) ?? noEntries }

  tokens (): Iterable<string> { return this.#by.keys() }

  clear (): void { this.#by.clear() }

  put (token: string, rest: string, entry: Entry | undefined): void {
    let under = this.#by.get(token)
    if (!entry) {
      under?.delete(rest)
      if (under?.size === 0) this.#by.delete(token)
      return
    }
    if (!under) this.#by.set(token, under = new Map())
    under.set(rest, entry)
  }
}

/**
 * The newest entry of each key. An entry is never changed, only taken the place of: whoever keeps what it made of some entries
 * knows by their identity whether it still counts.
 */
export class Picture {
  /** Another one whenever anything moved. */
  version = 0
  /** Characters of keys and texts together. */
  characters = 0
  /** Compositions by module, then node; and by node, then module. */
  readonly compositionsOf = new Index()
  readonly compositionsOn = new Index()
  /** Grants by module, then fingerprint. */
  readonly grantsOf = new Index()
  readonly #buckets = new Map<BucketName, Map<string, Entry>>()
  readonly #epochs = new Map<BucketName, number>()

  /** A bucket starts again from all keys: what was known of it is forgotten. `epoch` is its creation time in ms. */
  anew (bucket: BucketName, epoch: number): void {
    this.version++
    for (const entry of this.all(bucket).values()) this.characters -= sizeOf(entry)
    this.#buckets.set(bucket, new Map())
    this.#epochs.set(bucket, epoch)
    if (bucket === 'compositions') for (const index of [this.compositionsOf, this.compositionsOn]) index.clear()
    if (bucket === 'grants') this.grantsOf.clear()
  }

  /** One key's write or marker. */
  entry (bucket: BucketName, entry: Entry): void {
    this.version++
    const { key } = entry
    const before = this.get(bucket, key)
    if (before) this.characters -= sizeOf(before)
    // A marker says something of the inventory alone: there, absence and deletion are two things (DESIGN section 5).
    const stands = entry.deleted && bucket !== 'inventory' ? undefined : entry
    const entries = this.#buckets.get(bucket)
    if (stands) entries?.set(key, stands)
    else entries?.delete(key)
    if (stands) this.characters += sizeOf(stands)
    const dot = key.indexOf('.')
    const [first, rest] = [key.slice(0, dot), key.slice(dot + 1)]
    if (bucket === 'compositions') {
      this.compositionsOn.put(first, rest, stands)
      this.compositionsOf.put(rest, first, stands)
    }
    if (bucket === 'grants') this.grantsOf.put(first, rest, stands)
  }

  get (bucket: BucketName, key: string): Entry | undefined { return this.#buckets.get(bucket)?.get(key) }

  all (bucket: BucketName): ReadonlyMap<string, Entry> { return this.#buckets.get(bucket) ?? noEntries }

  epoch (bucket: BucketName): number { return this.#epochs.get(bucket) ?? 0 }

  /** What comes after the first token of the inventory's keys of a kind (`module`, `node`, …), markers left out, in order. */
  named (kind: string): string[] {
    const start = `${kind}.`
    return [...this.all('inventory').values()].filter(({ key, deleted }) => !deleted && key.startsWith(start)).map(({ key }) => key.slice(start.length)).sort()
  }
}

const sizeOf = ({ key, text }: Entry): number => key.length + text.length
