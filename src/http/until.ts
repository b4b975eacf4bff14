import { limits } from '../core/limits.js'

/** Calls `done` at a time in ms, however far it is: a timer beyond 2^31-1 ms would fire at once, so a far end is waited for in pieces. */
export class Until {
  #timer: NodeJS.Timeout | undefined

  constructor (private readonly done: () => void) {}

  set (at: number): void {
    clearTimeout(this.#timer)
    const left = at - Date.now()
    if (left <= 0) return this.done()
    this.#timer = setTimeout(() => this.set(at), Math.min(left, limits.longestTimerMs))
  }

  clear (): void { clearTimeout(this.#timer) }
}
