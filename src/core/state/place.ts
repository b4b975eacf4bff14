/** Where a module stands, in one word, and why; and the same for it on one node. `docs/state.md` explains the words. */
import { limits } from '../limits.js'
import { short } from '../names.js'
import { isSeat, type Facts } from './facts.js'
import type { Findings } from './findings.js'
import type { OnNode } from './on-node.js'

/** The words, in their precedence: the first that holds is said. */
export const places = ['failing', 'waiting', 'never-taken-in', 'behind', 'unassigned', 'current'] as const
export type Place = typeof places[number]

export interface Placed { where: Place, why: string }

const told = (clauses: string[]): string => {
  const some = clauses.slice(0, limits.stateDifferences)
  return `${some.join('; ')}${clauses.length > some.length ? `; and ${clauses.length - some.length} more` : ''}`
}

/** Puts a module in its place. `current` and `unassigned` say that a take-in would write nothing. */
export function placeOf (facts: Facts, { gaps, broken }: Findings): Placed {
  const { module, registered, trunk, aim, awaits, assigned, failed, nodes } = facts
  const differs = told([...broken, ...gaps])
  const isBehind = differs !== ''
  const mend = broken.length > 0 ? 'Mend that, then take it in' : 'A take-in mends it'

  // Whether the bus's servers run with its users no document says: only a take-in hears it.
  const isUnheard = failed?.step === 'busHolder' && registered !== undefined && nodes.length > 0
  if (failed && (isBehind || isUnheard)) {
    const now = isBehind ? `Still: ${differs}. ${mend}` : 'No other has gone through since: take it in again'
    return { where: 'failing', why: `the last take-in failed at ${failed.step}: ${failed.error ?? ''}. ${now}` }
  }
  if (aim && awaits && broken.length === 0) {
    const until = `its trunk value names ${short(aim.fp)} (${short(aim.commit)}), whose build is not there: its done key wakes the take-in`
    return { where: 'waiting', why: isBehind ? `${until}. Meanwhile ${differs}. ${mend}` : until }
  }
  if (!registered && broken.length === 0) {
    if (aim) return { where: 'never-taken-in', why: `${differs}. Take it in` }
    const why = trunk ? `its trunk value has a fingerprint of an older form, ${short(trunk.fp)}: the indexer must write one that starts with fp2-` : 'it has no trunk value: the indexer has not said what it should be at'
    return { where: 'never-taken-in', why }
  }
  if (isBehind) return { where: 'behind', why: `${differs}. ${mend}` }
  const at = `${module} at ${short(registered?.fp ?? '')}`
  if (assigned.length === 0) return { where: 'unassigned', why: `${at} ${whyUnassigned(facts)}` }
  const more = aim ? '' : trunk ? '; its trunk value has a fingerprint of an older form' : '; it has no trunk value'
  return { where: 'current', why: `${at} is current on ${assigned.join(', ')}${more}` }
}

/** Absence alone removes nothing (DESIGN section 5), so what still stands must be said. */
function whyUnassigned ({ module, assignment, left, grants }: Facts): string {
  if (assignment !== 'absent') return 'is assigned to no node'
  const still = [...(left.length > 0 ? [`on ${left.join(', ')}`] : []), ...(grants.size > 0 ? ['in a grant'] : [])]
  if (still.length === 0) return `has no assignment: write assignment.${module}`
  return `has no assignment, and nobody deleted one: it still stands ${still.join(' and ')}. Write assignment.${module}, or delete it`
}

/** Where a module of that place stands on one of its nodes. */
export function placeOnNode (facts: Facts, { where, why }: Placed, one: OnNode): Placed {
  const { module, held, removed, registered, aim, awaits, isAt, assignment, assigned, holder } = facts
  const { node } = one
  if (!assigned.includes(node)) return { where: 'unassigned', why: whyStray() }
  if (!registered) return { where, why }
  const behind = where === 'failing' ? where : 'behind'
  const own = isSeat(holder, module, node) ? holder : one
  const differs = own?.broken ?? own?.differs
  if (differs !== undefined) return { where: behind, why: differs }
  if (!aim || isAt) return { where: 'current', why: `it carries ${short(registered.fp)}, as registered` }
  return { where: awaits ? 'waiting' : behind, why: `it carries ${short(registered.fp)}, as registered, and its trunk value names ${short(aim.fp)}` }

  function whyStray (): string {
    if (removed) return `${module} was removed from the catalogue: a take-in clears it from here`
    if (!held) return `${module} is not in the catalogue, and nobody removed it: write inventory module.${module}, or delete it`
    if (assignment !== 'absent') return `${module} left this node: a take-in clears it`
    return `${module} has no assignment, and nobody deleted one: write assignment.${module}, or delete it`
  }
}
