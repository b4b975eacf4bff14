import type fc from 'fast-check'
import type { Stage } from './stage.js'

/** One kind of hostile input: how it is drawn, and what has to come of it. */
export interface Kind<T = never> {
  readonly promise: string
  /** Inputs in the short form that runs with all tests. */
  readonly runs: number
  readonly input: fc.Arbitrary<T>
  /** Tries one input; resolves with what came of it in a word or two, for the counts. Rejects where the promise does not hold. */
  attempt (stage: Stage, input: T): Promise<string>
}

/** A kind whose input's type is known to itself alone. */
export const kind = <T>(made: Kind<T>): Kind => made as unknown as Kind
