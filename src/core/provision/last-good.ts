import type { Entry } from './entry.js'
import type { Said } from './said.js'

/**
 * The last known value where a caller takes one that was known current at most `withinS` seconds ago, with its age; undefined where
 * there is none, or a refusal was heard since: what is no longer given must not come out of memory (DESIGN section 6).
 */
export function lastGood (
  entry: Entry | undefined, withinS: number | undefined, now = Date.now()
): { said: Extract<Said, { bytes: Uint8Array }>, ageS: number } | undefined {
  const said = entry?.said
  if (withinS === undefined || !entry || !said || !('bytes' in said)) return undefined
  const ageS = Math.max(0, Math.ceil((now - (entry.currentUntil ?? entry.confirmedAt)) / 1000))
  return ageS <= withinS ? { said, ageS } : undefined
}
