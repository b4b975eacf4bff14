import type { Brokers } from '../ports.js'
import { isOlder, type Revision } from '../revision.js'

/**
 * Which of the bus's servers are known to run with which user list. What this process did not hear itself it asks: whoever wrote
 * a list may have been killed before it asked, and nothing that stands would tell.
 */
export class Applied {
  readonly #heard = new Map<string, Revision>()
  /** Asks on their way: those who want the same revision, or an older one, share them. */
  readonly #asked = new Map<string, { revision: Revision, answer: Promise<void> }>()

  /** `heard` is told of each answer: whether the server runs with what was asked. */
  constructor (private readonly brokers: Brokers, private readonly heard: (server: string, applied: boolean) => void = () => {}) {}

  /** Whether the server was heard to run with the users of that revision or of a later one. */
  has (server: string, revision: Revision): boolean {
    const heard = this.#heard.get(server)
    return heard !== undefined && !isOlder(heard, revision)
  }

  /** A new revision of the list has the same users as one before: who ran with that runs with this. */
  same (before: Revision, revision: Revision): void {
    for (const server of this.#heard.keys()) if (this.has(server, before)) this.#hear(server, revision)
  }

  /** Asks the server's agent; resolves once the server runs with these users, rejects with the reason. */
  async ask (server: string, revision: Revision): Promise<void> {
    const going = this.#asked.get(server)
    if (going && !isOlder(going.revision, revision)) return going.answer
    const one = { revision, answer: this.brokers.applied(server, revision) }
    this.#asked.set(server, one)
    try {
      await one.answer
      this.#hear(server, revision)
      this.heard(server, true)
    } catch (error) {
      // Whatever it said before: the next run asks again.
      this.#heard.delete(server)
      this.heard(server, false)
      throw error
    } finally {
      if (this.#asked.get(server) === one) this.#asked.delete(server)
    }
  }

  /** Revisions may have gone back: what was heard of them says nothing any more. */
  forget (): void { this.#heard.clear() }

  #hear (server: string, revision: Revision): void {
    const heard = this.#heard.get(server)
    if (!heard || isOlder(heard, revision)) this.#heard.set(server, revision)
  }
}
