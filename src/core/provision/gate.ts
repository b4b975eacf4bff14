import { MeshError } from '../errors.js'

/** A queue whose first is taken without moving all the others: they may be very many. */
class Queue<T> {
  #items: T[] = []
  #first = 0

  get length (): number { return this.#items.length - this.#first }

  push (item: T): void { this.#items.push(item) }

  shift (): T | undefined {
    const item = this.#items[this.#first++]
    if (this.#first >= 1024 && 2 * this.#first >= this.#items.length) {
      this.#items = this.#items.slice(this.#first)
      this.#first = 0
    }
    return item
  }
}

/**
 * Lets a bounded number of asks be in flight; the others wait for their turn in a bounded queue. Each party has a queue of its own, in
 * order, and the parties take turns: whoever asks very much waits for himself, not the others for him.
 */
export class Gate {
  #inside = 0
  #waiting = 0
  /** The party whose turn is next stands first. */
  readonly #queues = new Map<string, Queue<() => void>>()

  /** `most` at once; `queued` waiting in all, `each` of one party. */
  constructor (private readonly most: number, private readonly queued: number, private readonly each = queued) {}

  /** Runs `work` when it is its turn. Rejects with `overloaded` where too much waits already, else as `work` does. */
  async through<T> (work: () => Promise<T>, party = ''): Promise<T> {
    if (this.#inside >= this.most) {
      let queue = this.#queues.get(party)
      if (this.#waiting >= this.queued || (queue?.length ?? 0) >= this.each) {
        throw new MeshError('overloaded', 'too much waits for its turn already: try again in a moment')
      }
      if (!queue) this.#queues.set(party, queue = new Queue())
      const own = queue
      this.#waiting++
      await new Promise<void>((resolve) => own.push(resolve))
    } else this.#inside++
    try {
      return await work()
    } finally {
      // The place is handed on, not given back, so that nobody who comes meanwhile gets in front.
      const next = this.#next()
      if (next) next()
      else this.#inside--
    }
  }

  #next (): (() => void) | undefined {
    for (const [party, queue] of this.#queues) {
      this.#queues.delete(party)
      const next = queue.shift()
      if (queue.length > 0) this.#queues.set(party, queue)
      if (next) {
        this.#waiting--
        return next
      }
    }
    return undefined
  }
}
