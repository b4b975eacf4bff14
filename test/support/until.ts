/** The one place of the tests that waits by the clock: everything else waits for an event, or asks here until it holds. */
import { setTimeout as timer } from 'node:timers/promises'

type Truthy<T> = Exclude<T, undefined | null | false | 0 | ''>

/** A pause in ms: what a stand-in takes to answer, the lag of a proxy. No test waits with it. */
export const pause = (ms: number): Promise<void> => timer(ms)

/** Asks `fn` every few ms until its answer is truthy, and hands that back; undefined when `ms` are over. */
export async function until<T> (fn: () => T | Promise<T>, ms = 2000, every = 10): Promise<Truthy<T> | undefined> {
  const end = Date.now() + ms
  for (;;) {
    const answer = await fn()
    if (answer) return answer as Truthy<T>
    if (Date.now() >= end) return undefined
    await pause(every)
  }
}

/** The same, for what a test cannot go on without: throws, naming it, when `ms` are over. */
export async function eventually<T> (what: string, fn: () => T | Promise<T>, ms = 5000): Promise<Truthy<T>> {
  const answer = await until(fn, ms)
  if (answer === undefined) throw new Error(`${what}: not within ${ms} ms`)
  return answer
}

/** What a promise brings, or undefined where it takes longer than `ms`; the promise itself goes on. */
export async function within<T> (promise: Promise<T>, ms: number): Promise<T | undefined> {
  const stop = new AbortController()
  try {
    return await Promise.race([promise, timer(ms, undefined, { signal: stop.signal })])
  } finally {
    stop.abort()
  }
}
