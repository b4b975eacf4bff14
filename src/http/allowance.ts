/** So much a second, and so much at once: what a client may do, which fills again as time goes by. */
export class Allowance {
  #left: number
  #at: number

  constructor (private readonly perSecond: number, private readonly atOnce: number, now: number) {
    this.#left = atOnce
    this.#at = now
  }

  /** Takes one; answers how many whole seconds to wait where none is left. */
  take (now: number): number | undefined {
    // A clock that was set back gives nothing and takes nothing.
    this.#left = Math.min(this.atOnce, this.#left + Math.max(0, now - this.#at) / 1000 * this.perSecond)
    this.#at = now
    if (this.#left < 1) return Math.ceil((1 - this.#left) / this.perSecond)
    this.#left--
    return undefined
  }
}
