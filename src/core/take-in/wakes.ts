/**
 * Which take-ins a written key concerns (DESIGN section 3). What is remembered here only says whom to wake; a run reads
 * everything again from the leader.
 */
import { limits } from '../limits.js'
import type { BucketName, Entry } from '../ports.js'

export interface WakesOptions {
  wake (module: string, why: string): void
  /** Whether this process wrote the key itself, in a run that goes on from there. */
  isOwn (bucket: BucketName, entry: Entry): boolean
}

interface Known { assignment?: string[], offersUsed?: Set<string>, registered: boolean }

export class Wakes {
  readonly #modules = new Map<string, Known>()
  #seat: string | undefined

  constructor (private readonly options: WakesOptions) {}

  /** Forgets what was learnt of the inventory, which starts again from all keys. */
  anew (): void {
    this.#modules.clear()
    this.#seat = undefined
  }

  /** Learns from a key of the inventory without waking anybody. */
  learn (entry: Entry): void { this.#learn(entry) }

  /** Looks at every module once: at the start, and when the bus is heard again. The broker module first, since all others wait for it. */
  all (why: string): void {
    const modules = [...this.#modules.keys()].sort((a, b) => Number(b === this.#seat) - Number(a === this.#seat))
    for (const module of modules) this.options.wake(module, why)
  }

  /** A key was written by the builder, the indexer, an operator or another gateway. */
  written (bucket: BucketName, entry: Entry): void {
    const { key } = entry
    const why = `key ${bucket} ${key}`
    if (bucket === 'trunk' || bucket === 'settings') return this.options.wake(key, why)
    if (bucket === 'builds') {
      const module = /^done\.([^.]+)\./.exec(key)?.[1]
      if (module !== undefined) this.options.wake(module, why)
      return
    }
    if (bucket !== 'inventory') return
    const wasRegistered = this.#modules.get(key.slice('module.'.length))?.registered ?? false
    const dot = key.indexOf('.')
    const what = key.slice(0, dot)
    const of = key.slice(dot + 1)
    const ring = what === 'binding' ? this.#ringOf(of) : []
    this.#learn(entry)
    if (what === 'seat') return this.all(why)
    if (what === 'node') {
      for (const [module, { assignment }] of this.#modules) if (assignment?.includes(of)) this.options.wake(module, why)
      return
    }
    if (!this.options.isOwn(bucket, entry)) this.options.wake(of, why)
    // One of a ring of bindings is not composed. Which one, or none any more, may be another now.
    if (what === 'binding') for (const module of new Set([...ring, ...this.#ringOf(of)])) this.options.wake(module, why)
    if (what !== 'module') return
    // The bus's users can be composed from here on: whoever failed for want of a broker module is looked at again.
    if (of === this.#seat && !wasRegistered && this.#modules.get(of)?.registered) this.all(why)
    else for (const [module, { offersUsed }] of this.#modules) if (offersUsed?.has(of) && module !== of) this.options.wake(module, why)
  }

  /** The other modules that bindings lead to from this one and back. */
  #ringOf (module: string): string[] {
    const [from, to] = [this.#reached(module, (at) => this.#modules.get(at)?.offersUsed ?? []), this.#reached(module, (at) => this.#usersOf(at))]
    return from.has(module) ? [...from].filter((other) => other !== module && to.has(other)) : []
  }

  #usersOf (module: string): string[] {
    return [...this.#modules].filter(([, { offersUsed }]) => offersUsed?.has(module)).map(([name]) => name)
  }

  #reached (module: string, next: (at: string) => Iterable<string>): Set<string> {
    const reached = new Set<string>()
    const edge = [module]
    for (let at = edge.pop(); at !== undefined && reached.size <= limits.bindingWalk; at = edge.pop()) {
      for (const to of next(at)) {
        if (reached.has(to)) continue
        reached.add(to)
        edge.push(to)
      }
    }
    return reached
  }

  #learn ({ key, deleted, text }: Entry): void {
    const dot = key.indexOf('.')
    const what = key.slice(0, dot)
    const of = key.slice(dot + 1)
    const document = deleted ? undefined : parsed(text)
    if (what === 'seat') { this.#seat = typeof document?.module === 'string' ? document.module : undefined; return }
    if (what === 'node') return
    let known = this.#modules.get(of)
    if (!known) this.#modules.set(of, known = { registered: false })
    if (what === 'module') known.registered = document?.fp !== undefined
    else if (what === 'assignment') known.assignment = Array.isArray(document?.nodes) ? document.nodes.filter((node) => typeof node === 'string') : []
    else if (what === 'binding') {
      const used = Object.values(document ?? {}).map((to) => (to as { module?: unknown } | null)?.module)
      known.offersUsed = new Set(used.filter((module) => typeof module === 'string'))
    }
  }
}

/** A hint at best: whoever is woken reads and judges the document itself. */
function parsed (text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : undefined
  } catch { return undefined }
}
