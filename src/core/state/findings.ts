/** What a take-in would do now, were it run: nothing of what it would write is written here. */
import { sameCommit, short } from '../names.js'
import { readGrant } from './documents.js'
import { isSeat, type Facts } from './facts.js'

/** What a take-in would write, and what it would fail by; each a clause. */
export interface Findings { gaps: string[], broken: string[] }

export function findingsOf (facts: Facts): Findings {
  const { aim, awaits, bad, held, isAt, registered } = facts
  const broken = [bad.held, bad.trunk].filter((why) => why !== undefined)
  if (!held || broken.length > 0) return { gaps: [], broken }
  if (aim && !isAt && !awaits) {
    const now = registered ? `${short(registered.fp)} (${short(registered.commit)})` : 'nothing'
    // What comes after it is composed of another manifest than the one that is registered now.
    return { gaps: [`its trunk value names ${short(aim.fp)} (${short(aim.commit)}), whose build is there, and ${now} is registered`], broken }
  }
  if (!registered) return { gaps: [], broken }
  if (bad.assignment !== undefined) return { gaps: [], broken: [bad.assignment] }

  const own = compositionFindings(facts)
  const grantGaps = grantFindings(facts)
  const { assignment, holder, listing, nodes } = facts
  // The step is left out where nothing of the module concerns the bus, and writes nothing where what the list says of it is right.
  const isDue = nodes.length > 0 || grantGaps.length > 0 || own.gaps.length > 0 || (assignment !== 'absent' && listing.isListed)
  const concerns = isDue && !listing.isRight
  return {
    gaps: [...own.gaps, ...(concerns && holder?.differs !== undefined ? [holder.differs] : []), ...grantGaps],
    // A seat that does not fit is read by every run, one that is not in place only where its composition is due.
    broken: [...own.broken, ...(holder?.broken !== undefined && (concerns || !holder.seat) ? [holder.broken] : [])]
  }
}

function compositionFindings ({ module, nodes, others, assignment, assigned, left, holder, registered }: Facts): Findings {
  const gaps: string[] = []
  const broken = new Set<string>()
  for (const one of nodes) {
    if (!assigned.includes(one.node) || isSeat(holder, module, one.node)) continue
    if (one.broken !== undefined) broken.add(one.broken)
    else if (one.differs !== undefined) gaps.push(`on ${one.node}, ${one.differs}`)
  }
  if (assignment !== 'absent' && left.length > 0) gaps.push(`it still stands on ${left.join(', ')}, which it left`)
  if (Object.keys(registered?.manifest.offers ?? {}).length > 0) {
    const kept = new Set<string>()
    for (const { of, on } of others) {
      if (!on.stands || isSeat(holder, of, on.node)) continue
      // One that cannot be resolved keeps what it has, on this node and those after it: that is its own module's concern.
      if (on.broken !== undefined) kept.add(of)
      if (on.differs !== undefined && !kept.has(of)) gaps.push(`on ${on.node}, in the composition of ${of}, which is bound to what it offers, ${on.differs}`)
    }
  }
  return { gaps, broken: [...broken] }
}

/** A grant is behind where fingerprint, commit or nodes differ, not where a composition was merely written again (DESIGN section 3.8). */
function grantFindings ({ assignment, assigned, grants, registered }: Facts): string[] {
  if (assigned.length === 0) return assignment !== 'absent' && grants.size > 0 ? ['grants of it stand though it runs nowhere'] : []
  const { fp = '', commit = '' } = registered ?? {}
  const { document } = readGrant(grants.get(fp))
  const others = [...grants.keys()].filter((one) => one !== fp)
  const isSame = document?.fp === fp && sameCommit(document.commit, commit)
  const isBehind = !isSame || Object.keys(document.nodes).sort().join() !== assigned.join()
  return [
    ...(isBehind ? [document ? `the grant of ${short(fp)} is not of this registration on ${assigned.join(', ')}` : `no grant of ${short(fp)} stands`] : []),
    ...(others.length > 0 ? [`grants of other fingerprints stand: ${others.map(short).join(', ')}`] : [])
  ]
}
