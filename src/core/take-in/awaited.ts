/** Those who wait for a module's build that is not there yet: told of each run as it ends. */
export class Awaited<T> {
  readonly #waiting = new Map<string, Set<Waiter<T>>>()
  #stopped = false

  has (module: string): boolean { return this.#waiting.has(module) }

  /** From now on no run of the module is missed, until `end`. */
  wait (module: string): Waiter<T> {
    const waiting = this.#waiting.get(module) ?? new Set()
    this.#waiting.set(module, waiting)
    const waiter = new Waiter<T>(() => {
      waiting.delete(waiter)
      if (waiting.size === 0 && this.#waiting.get(module) === waiting) this.#waiting.delete(module)
    })
    if (this.#stopped) waiter.stop()
    waiting.add(waiter)
    return waiter
  }

  ended (module: string, run: T): void {
    for (const waiter of this.#waiting.get(module) ?? []) waiter.tell(run)
  }

  /** Nobody waits any longer: each is answered with what is known. */
  stop (): void {
    this.#stopped = true
    for (const waiting of this.#waiting.values()) for (const waiter of waiting) waiter.stop()
  }
}

export class Waiter<T> {
  readonly #runs: T[] = []
  #wake: (() => void) | undefined
  #stopped = false

  constructor (readonly end: () => void) {}

  tell (run: T): void {
    this.#runs.push(run)
    this.#wake?.()
  }

  stop (): void {
    this.#stopped = true
    this.#wake?.()
  }

  /** The next run that ended; undefined where none does within `ms`. */
  async next (ms: number): Promise<T | undefined> {
    if (this.#runs.length === 0 && ms > 0 && !this.#stopped) {
      let timer: NodeJS.Timeout | undefined
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        timer = setTimeout(resolve, ms)
      })
      clearTimeout(timer)
    }
    return this.#runs.shift()
  }
}
