/** Dev's processes: started one after the other, ended in the opposite order, and all of them when one of them fails. */
import { Part, type PartOptions } from './part.js'

export class Tree {
  readonly #parts: Part[][] = []
  #ending: Promise<void> | undefined
  #guarded: number | undefined
  readonly #failed: (why: string) => void
  /** Resolves with a sentence when a part ended that should not have. */
  readonly failure: Promise<string>

  constructor () {
    let failed = (_: string): void => {}
    this.failure = new Promise((resolve) => { failed = resolve })
    this.#failed = failed
  }

  /** Starts parts that end together, before those that were started earlier; resolves when all are ready, if they say so. */
  start (...options: PartOptions[]): Part[] {
    if (this.#ending) throw new Error('ending')
    const parts = options.map((one) => new Part(one))
    this.#parts.push(parts)
    for (const part of parts) void part.ended.then((why) => { if (!this.#ending) this.#failed(`${part.name} ${why}`) })
    return parts
  }

  get isEnding (): boolean { return this.#ending !== undefined }

  /** Takes note of the program that the first part guards, from what that part said when it was ready. */
  guards (said: unknown): void { this.#guarded = (said as { pid?: number } | undefined)?.pid }

  /** Ends all that was started, last first. */
  end (): Promise<void> {
    this.#ending ??= (async () => {
      for (const parts of [...this.#parts].reverse()) await Promise.all(parts.map((part) => part.end()))
      // A guard that was killed has left its program behind.
      const [guard] = this.#parts[0] ?? []
      if (guard?.wasKilled && this.#guarded !== undefined) {
        try { process.kill(this.#guarded, 'SIGKILL') } catch { /* it has ended, too */ }
      }
    })()
    return this.#ending
  }
}
