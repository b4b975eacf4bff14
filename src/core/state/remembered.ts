/** Results, and what each was made of: made again only where one of these is another by now. */
export class Remembered<T> {
  readonly #kept = new Map<string, { of: readonly unknown[], result: T }>()

  /** The result under a key. `of` is all it is made of, compared by identity. */
  get (key: string, of: readonly unknown[], make: () => T): T {
    const kept = this.#kept.get(key)
    if (kept && kept.of.length === of.length && kept.of.every((one, at) => one === of[at])) return kept.result
    const result = make()
    this.#kept.set(key, { of, result })
    return result
  }

  get size (): number { return this.#kept.size }

  /** Forgets all but some: what is not there any more must not be kept for ever. */
  keepOnly (keys: ReadonlySet<string>): void { for (const key of this.#kept.keys()) if (!keys.has(key)) this.#kept.delete(key) }
}
