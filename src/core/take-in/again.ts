import { Conflict, Transient } from '../errors.js'
import { limits } from '../limits.js'

export interface Patience {
  now: () => number
  random: () => number
  pause: (ms: number) => Promise<void>
}

/**
 * Reads, computes and writes again after a lost compare-and-set, with jitter, until `deadline` (ms): a conflict is no fault. A
 * transient fault is tried again a few times, briefly. Everything else is thrown as it is (DESIGN section 3).
 */
export async function again<T> (work: () => Promise<T>, deadline: number, { now, random, pause }: Patience): Promise<T> {
  let faults = 0
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (error instanceof Transient) {
        if (++faults >= limits.transientTries) throw error
      } else if (!(error instanceof Conflict)) throw error
      const wait = Math.min(limits.transientPauseMs * 2 ** Math.min(tries - 1, 5), 1000) * (0.1 + 0.9 * random())
      if (now() + wait >= deadline) {
        throw new Error(`not through within ${limits.takeInMs / 1000} s: ${error.message}`, { cause: error })
      }
      await pause(wait)
    }
  }
}
