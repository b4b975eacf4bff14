/** Calls on a connection that comes and goes. */
import { Events, type NatsConnection } from 'nats'
import { Transient } from '../core/errors.js'
import { limits } from '../core/limits.js'

/**
 * Makes calls while the bus is there. One whose answer can no longer come, since the connection was lost, ends at once and not
 * by its timeout; one that is made meanwhile waits for the bus, no longer than such a call may take.
 */
export class Calls {
  #connected = true
  readonly #waiting = new Set<() => void>()

  constructor (nc: NatsConnection) { void this.#hear(nc) }

  /** The result of `work`. Rejects with Transient where the bus is away or goes away, else as `work` does. */
  async run<T> (what: string, work: () => Promise<T>): Promise<T> {
    if (!this.#connected) await this.#change(limits.jetstreamMs).promise
    if (!this.#connected) throw new Transient(`${what}: the bus is away`)
    const change = this.#change()
    try {
      return await Promise.race([work(), change.promise.then(() => { throw new Transient(`${what}: the connection to the bus was lost`) })])
    } finally {
      change.forget()
    }
  }

  async #hear (nc: NatsConnection): Promise<void> {
    for await (const { type } of nc.status()) {
      if (type === Events.Disconnect) this.#connected = false
      else if (type === Events.Reconnect) this.#connected = true
      else continue
      for (const tell of [...this.#waiting]) tell()
    }
  }

  /** The next time the connection comes or goes, or the end of `ms`. */
  #change (ms?: number): { promise: Promise<void>, forget (): void } {
    let forget = (): void => {}
    const promise = new Promise<void>((resolve) => {
      const tell = (): void => { forget(); resolve() }
      const timer = ms === undefined ? undefined : setTimeout(tell, ms)
      forget = () => {
        clearTimeout(timer)
        this.#waiting.delete(tell)
      }
      this.#waiting.add(tell)
    })
    return { promise, forget }
  }
}
