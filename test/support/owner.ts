/** Who tidies up: whatever a test starts is given an end in the line that starts it. */

/** tap's `t`, or any other that runs the handlers, last first, when it is done. */
export interface Owner { teardown (handler: () => unknown): unknown }

const failures = new WeakMap<Owner, unknown[]>()

/**
 * Runs `end` when the owner is done. A handler that throws fails the test, but only after all the others ran: tap gives
 * up at the first, and a connection left open would then hold the test until its timeout.
 */
export function atEnd (t: Owner, end: () => unknown): void {
  let failed = failures.get(t)
  if (!failed) {
    const first: unknown[] = []
    failures.set(t, failed = first)
    t.teardown(() => { if (first.length > 0) throw first[0] })
  }
  const seen = failed
  t.teardown(async () => {
    try { await end() } catch (error) { seen.push(error) }
  })
}
