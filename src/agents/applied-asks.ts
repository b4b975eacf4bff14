/** The asks of take-ins whether a server runs with its users: held until it does, or until there is a reason why not. */
import { Value } from '@sinclair/typebox/value'
import { Empty, type ServiceMsg } from 'nats'
import { limits } from '../core/limits.js'
import { isOlder, parseRevision, type Revision } from '../core/revision.js'
import { AppliedSchema } from '../schemas/applied.js'

/** An ask that is held. `attempt` is how many attempts had begun when it came: an older one's failure is not its answer. */
interface Held { message: ServiceMsg, revision: Revision, attempt: number, timer: NodeJS.Timeout }

/** What the asks are answered from. */
export interface Applying {
  /** The revision whose list the server runs with. */
  applied?: Revision
  /** The revision that was tried last and failed, and why. */
  failed?: { revision: Revision, why: string }
  /** Attempts that have begun. */
  attempt: number
}

const covers = (a: Revision | undefined, b: Revision): boolean => a !== undefined && !isOlder(a, b)

function refuse (message: ServiceMsg, code: number, why: string): void { message.respondError(code, why, Empty) }

export class AppliedAsks {
  readonly #held = new Set<Held>()

  /** `why` says what keeps an ask waiting, for the one that waited too long. */
  constructor (private readonly state: Applying, private readonly why: (asked: Revision) => string) {}

  /** Takes an ask in; answers the revision it waits for, or undefined where it is answered already. */
  take (message: ServiceMsg): Revision | undefined {
    const revision = readAsk(message.string())
    if (!revision) refuse(message, 400, 'the ask is malformed: expected {"revision": "EPOCH.REVISION"}')
    else if (covers(this.state.applied, revision)) message.respond('{}')
    else if (this.#held.size >= limits.appliedAsks) refuse(message, 503, 'too many asks wait for a reload: ask again')
    else {
      const timer = setTimeout(() => this.#end(held, () => refuse(message, 500, this.why(revision))), limits.appliedAskMs)
      const held: Held = { message, revision, attempt: this.state.attempt, timer }
      this.#held.add(held)
      return revision
    }
    return undefined
  }

  /** Answers what an attempt that has just ended has decided. */
  settle (): void {
    const { applied, failed, attempt } = this.state
    for (const held of this.#held) {
      if (covers(applied, held.revision)) this.#end(held, () => held.message.respond('{}'))
      else if (failed && covers(failed.revision, held.revision) && held.attempt < attempt) {
        this.#end(held, () => refuse(held.message, 500, failed.why))
      }
    }
  }

  stop (): void {
    for (const held of this.#held) this.#end(held, () => refuse(held.message, 503, 'the broker agent is stopping: ask again'))
  }

  #end (held: Held, answer: () => void): void {
    clearTimeout(held.timer)
    this.#held.delete(held)
    // On a connection that is gone nothing can be answered, and whoever asked hears of that himself.
    try { answer() } catch { /* see above */ }
  }
}

function readAsk (payload: string): Revision | undefined {
  if (payload.length > limits.askBytes) return undefined
  try {
    const ask: unknown = JSON.parse(payload)
    return Value.Check(AppliedSchema, ask) ? parseRevision(ask.revision) : undefined
  } catch {
    return undefined
  }
}
