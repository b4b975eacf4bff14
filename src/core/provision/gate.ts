import { MeshError } from '../errors.js'

/** Lets a bounded number of asks be in flight; the others wait for their turn, in order, in a bounded queue. */
export class Gate {
  #inside = 0
  readonly #queue: Array<() => void> = []

  constructor (private readonly most: number, private readonly queued: number) {}

  /** Runs `work` when it is its turn. Rejects with `overloaded` where the queue is full, else as `work` does. */
  async through<T> (work: () => Promise<T>): Promise<T> {
    if (this.#inside >= this.most) {
      if (this.#queue.length >= this.queued) throw new MeshError('overloaded', 'too much waits for its turn already: try again in a moment')
      await new Promise<void>((resolve) => this.#queue.push(resolve))
    } else this.#inside++
    try {
      return await work()
    } finally {
      // The place is handed on, not given back, so that nobody who comes meanwhile gets in front.
      const next = this.#queue.shift()
      if (next) next()
      else this.#inside--
    }
  }
}
