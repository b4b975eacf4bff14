/**
 * The modules whose take-ins failed at the bus's node, and what is in their way there: its compose, or a server that does not take its
 * users. The key that mends it names the broker module or a node, and wakes none of them; so the first run for which it
 * goes through wakes them all.
 */
export class HeldUp {
  readonly #modules = new Set<string>()
  readonly #inTheWay = new Set<string>()
  #mends = 0

  constructor (private readonly wake: (module: string) => void) {}

  /** How often something was mended: a run that failed by what was mended since it began must not wait for the next time. */
  get mends (): number { return this.#mends }

  /** The compose of the bus's node (''), or a server's taking of its users, went through or did not. */
  went (what: string, through: boolean): void {
    if (!through) this.#inTheWay.add(what)
    else if (this.#inTheWay.delete(what)) {
      this.#mends++
      const modules = [...this.#modules]
      this.#modules.clear()
      modules.forEach(this.wake)
    }
  }

  /** A run ended; `mends` is what `mends` was when it began. */
  ended (module: string, isHeldUp: boolean, mends: number): void {
    this.#modules.delete(module)
    if (isHeldUp && mends === this.#mends) this.#modules.add(module)
    else if (isHeldUp) this.wake(module)
  }
}
