/** Where the view's entries stand: by module, kind and key, those that nobody watches bounded by count, bytes and age. */
import { LRUCache } from 'lru-cache'
import { limits } from '../limits.js'
import type { ValueName } from '../names.js'
import type { Now, Word } from '../ports.js'
import { Entry } from './entry.js'
import type { Said } from './said.js'

export class Shelf {
  readonly #modules = new Map<string, Map<string, Entry>>()
  readonly #idle: LRUCache<Entry, Said>
  #purgedAt = 0

  /** `gone` is told of an entry that left. */
  constructor (now: Now, private readonly gone: (entry: Entry) => void) {
    this.#idle = new LRUCache<Entry, Said>({
      max: limits.unwatchedValues,
      maxSize: limits.unwatchedBytes,
      // An entry costs something even where its value is small.
      sizeCalculation: (said, { name }) => 512 + 2 * name.key.length + ('bytes' in said ? said.bytes.length : said.refused.length),
      ttl: limits.unwatchedMs,
      perf: { now },
      ttlResolution: 0,
      // Only a reader keeps a value: the probe's own asks would keep it for ever, and an idle gateway asks nobody.
      noUpdateTTL: true,
      updateAgeOnGet: true,
      dispose: (_, entry, reason) => { if (reason !== 'set' && reason !== 'delete') this.#forget(entry) }
    })
  }

  get size (): number { let n = 0; for (const of of this.#modules.values()) n += of.size; return n }

  * entries (): Iterable<Entry> { for (const of of this.#modules.values()) yield * of.values() }

  find ({ module, kind, key }: ValueName): Entry | undefined { return this.#modules.get(module)?.get(idOf(kind, key)) }

  /** The entries that a word is about. */
  moved ({ module, kind, key }: Word): Entry[] {
    const of = this.#modules.get(module)
    if (!of) return []
    if (key === undefined) return [...of.values()].filter((entry) => entry.name.kind === kind)
    const entry = of.get(idOf(kind, key))
    return entry ? [entry] : []
  }

  /** The entry of a name, made where there is none. */
  open (name: ValueName): Entry {
    let of = this.#modules.get(name.module)
    if (!of) this.#modules.set(name.module, of = new Map())
    const id = idOf(name.kind, name.key)
    let entry = of.get(id)
    if (!entry) of.set(id, entry = new Entry(name))
    return entry
  }

  /** A reader wanted it: it is the last to leave. */
  touch (entry: Entry): void { this.#idle.get(entry) }

  /** It is watched: it does not leave. */
  hold (entry: Entry): void { this.#idle.delete(entry) }

  /** Nobody watches it, waits for it or asks it: it may leave from now on, at once where nothing is known of it. */
  release (entry: Entry): void {
    if (entry.said !== undefined && this.#idle.set(entry, entry.said).has(entry)) return
    // Never answered, larger than all of the room, or kept long enough.
    this.#idle.delete(entry)
    this.#forget(entry)
  }

  /** Lets those leave that nobody wanted for long. */
  tick (now: number): void {
    if (now - this.#purgedAt < limits.purgeMs) return
    this.#purgedAt = now
    this.#idle.purgeStale()
  }

  #forget (entry: Entry): void {
    if (entry.wanted) return
    this.gone(entry)
    const { module, kind, key } = entry.name
    const of = this.#modules.get(module)
    if (of?.get(idOf(kind, key)) !== entry) return
    of.delete(idOf(kind, key))
    if (of.size === 0) this.#modules.delete(module)
  }
}

// A kind holds no blank, so no two names share an id.
const idOf = (kind: string, key: string): string => `${kind} ${key}`
