import fc from 'fast-check'
import type { Test } from 'tap'

/** One assertion that a property holds for whatever is drawn; a failure tells the smallest example that was found. */
export function holds<Ts> (t: Test, promise: string, property: fc.IProperty<Ts>, parameters: fc.Parameters<Ts> = {}): void {
  const details = fc.check(property, parameters)
  t.notOk(details.failed, details.failed ? `${promise}: ${JSON.stringify(details.counterexample)}` : promise)
}
