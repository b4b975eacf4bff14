/** Places that a module has, of which it cannot take more than so many at a time. */
export class Places {
  readonly #taken = new Map<string, number>()

  constructor (readonly most: number) {}

  /** Takes a place; false where all are taken. */
  take (module: string): boolean {
    const has = this.#taken.get(module) ?? 0
    if (has >= this.most) return false
    this.#taken.set(module, has + 1)
    return true
  }

  /** Gives a place back. What holds none is forgotten. */
  give (module: string): void {
    const has = (this.#taken.get(module) ?? 1) - 1
    if (has > 0) this.#taken.set(module, has)
    else this.#taken.delete(module)
  }
}
