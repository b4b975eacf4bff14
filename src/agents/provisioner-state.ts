/** What one node's provisioner knows: the values of its modules, by revision. Pure: entries in, answers and words out. */
import { Value } from '@sinclair/typebox/value'
import { canonical, readDocument } from '../core/documents.js'
import { messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { isName, quoted, readableKinds, whyNoKey, type Kind } from '../core/names.js'
import type { Entry, Keys, Word } from '../core/ports.js'
import type { Revision } from '../core/revision.js'
import { AskSchema } from '../schemas/ask.js'
import { CompositionSchema } from '../schemas/composition.js'

/** A reply to an ask: JSON text, or why there is none, by the code of the services API (DESIGN section 4). */
export type Reply = { text: string } | { code: 400 | 403 | 404 | 500, reason: string }

/** A module that runs here: each value in the one form in which it is said. `broken` is why its composition cannot be read. */
interface Held { revision: number, broken?: string, values: Record<Kind, Map<string, string>> }

/** All that was read of one bucket since it was last read from the start. */
class Snapshot {
  last = 0
  readonly held = new Map<string, Held>()
  /** Modules that were here and have a marker instead of a composition. */
  readonly gone = new Set<string>()

  constructor (readonly epoch: number) {}

  get modules (): string[] { return [...this.held.keys(), ...this.gone] }
}

const valuesOf = (record: Record<string, unknown>): Map<string, string> =>
  new Map(Object.entries(record).map(([key, value]) => [key, canonical(value)]))

const noValues = (): Held['values'] => ({ config: new Map(), bound: new Map() })

export class ProvisionerState {
  #now = new Snapshot(0)
  /** The bucket is being read from the start; until that is done the answers are those of before. */
  #next: Snapshot | undefined

  constructor (private readonly node: string) {}

  anew (epoch: number): void { this.#next = new Snapshot(epoch) }

  /** Takes one key's write or marker in; answers the words to be said about it, now that the state has moved. */
  entry (entry: Entry): Word[] {
    const into = this.#next ?? this.#now
    const module = entry.key.slice(this.node.length + 1)
    if (!isName(module)) return []
    const before = into.held.get(module)
    const after = entry.deleted ? undefined : this.#read(module, entry)
    into.last = Math.max(into.last, entry.revision)
    if (after) into.held.set(module, after)
    else into.held.delete(module)
    if (after) into.gone.delete(module)
    else into.gone.add(module)
    return this.#next ? [] : this.#moved(module, before, after)
  }

  /** All that stood has been read: it is answered from here on. The words are those of every module that is or was here. */
  ready (): Word[] {
    const before = this.#now.modules
    this.#now = this.#next ?? this.#now
    this.#next = undefined
    return this.#wordsOf([...before, ...this.#now.modules])
  }

  /** The words for everything that is answered, and for what is gone: for whoever may have missed some. */
  all (): Word[] { return this.#wordsOf(this.#now.modules) }

  /** The composition's revision; for a module without one the last sequence of the bucket that was applied (DESIGN section 4). */
  revisionOf (module: string): Revision {
    return { epoch: this.#now.epoch, revision: this.#now.held.get(module)?.revision ?? this.#now.last }
  }

  /** Answers an ask; its payload is not trusted. */
  get (module: string, payload: string): Reply {
    if (payload.length > limits.askBytes) return { code: 400, reason: `the ask is longer than ${limits.askBytes} bytes` }
    let ask: unknown
    try { ask = JSON.parse(payload) } catch { /* said below */ }
    if (!Value.Check(AskSchema, ask)) {
      return { code: 400, reason: 'the ask is malformed: expected {"kind", "key"}, kind being one of config, bound, secret' }
    }
    const { kind, key } = ask
    const noKey = whyNoKey(key)
    if (noKey !== undefined) return { code: 400, reason: `the ask is malformed: the key ${noKey}` }
    if (kind === 'secret') return { code: 403, reason: 'a secret is never answered at runtime: only config and bound are' }
    const held = this.#heldOr(module)
    if ('code' in held) return held
    const text = held.values[kind].get(key)
    if (text === undefined) return { code: 404, reason: `module ${module} declares no ${kind} ${quoted(key)} on node ${this.node}` }
    return { text }
  }

  /** What a module may ask here. */
  list (module: string): Reply {
    const held = this.#heldOr(module)
    if ('code' in held) return held
    const keys: Keys = { config: [...held.values.config.keys()].sort(), bound: [...held.values.bound.keys()].sort() }
    return { text: JSON.stringify(keys) }
  }

  #heldOr (module: string): Held | Reply & { code: number } {
    if (!isName(module)) return { code: 400, reason: 'the module in the subject has no valid name' }
    const held = this.#now.held.get(module)
    if (!held) return { code: 403, reason: `module ${module} has no composition on node ${this.node}: it is not assigned there, or was not taken in yet` }
    return held.broken === undefined ? held : { code: 500, reason: held.broken }
  }

  #read (module: string, entry: Entry): Held {
    const { revision } = entry
    try {
      const composition = readDocument('compositions', entry, CompositionSchema)
      if (composition.node !== this.node || composition.module !== module) {
        return { revision, broken: `compositions ${entry.key} is of another node or module`, values: noValues() }
      }
      return { revision, values: { config: valuesOf(composition.config), bound: valuesOf(composition.bound) } }
    } catch (error) {
      return { revision, broken: messageOf(error), values: noValues() }
    }
  }

  /** A module that appears, vanishes, breaks or is mended moves as a whole; else exactly the values whose bytes moved. */
  #moved (module: string, before: Held | undefined, after: Held | undefined): Word[] {
    if (!before && !after) return []
    if (!before || !after || before.broken !== after.broken) return this.#wordsOf([module])
    const revision = this.revisionOf(module)
    return readableKinds.flatMap((kind) => {
      const [old, now] = [before.values[kind], after.values[kind]]
      const keys = new Set([...old.keys(), ...now.keys()])
      return [...keys].filter((key) => old.get(key) !== now.get(key)).map((key) => ({ module, kind, key, revision }))
    })
  }

  #wordsOf (modules: string[]): Word[] {
    return [...new Set(modules)].flatMap((module) => readableKinds.map((kind) => ({ module, kind, revision: this.revisionOf(module) })))
  }
}
