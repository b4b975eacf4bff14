/** The last step: the grant, which says which composition revisions carried the fingerprint (DESIGN section 3.8). */
import { canonical } from '../documents.js'
import { BadDocument } from '../errors.js'
import { limits } from '../limits.js'
import { sameCommit } from '../names.js'
import { formatRevision, isOlder, parseRevision } from '../revision.js'
import type { Entry } from '../ports.js'
import { GrantSchema, type Grant } from '../../schemas/composition.js'
import { readNodes, standingComposition } from './compose-nodes.js'
import { each } from './each.js'
import { heldModule, standing } from './inventory.js'
import type { Sight } from './sight.js'
import type { Granted, NodesOf, Registration } from './take.js'

/** The grant that stands; one that does not fit says nothing: it is written anew over its revision. */
function standingGrant (sight: Sight, fp: string): Grant | undefined {
  const key = `${sight.module}.${fp}`
  try {
    return standing('grants', key, sight.target('grants', key), GrantSchema).document
  } catch (error) {
    if (error instanceof BadDocument) return undefined
    throw error
  }
}

/**
 * Behind is a grant of another fingerprint, commit or set of nodes, or one that speaks of a composition which was removed since; not
 * one whose compositions were merely written again.
 */
function isBehind (sight: Sight, { fp, commit }: Registration, nodes: readonly string[]): boolean {
  const grant = standingGrant(sight, fp)
  if (grant?.fp !== fp || !sameCommit(grant.commit, commit)) return true
  if (canonical(Object.keys(grant.nodes).sort()) !== canonical([...nodes].sort())) return true
  return nodes.some((node) => {
    const [remade, named] = [sight.remade.get(node), parseRevision(grant.nodes[node])]
    return remade !== undefined && (named === undefined || isOlder(named, { epoch: sight.epoch, revision: remade }))
  })
}

const standingGrants = (sight: Sight): Entry[] => sight.all('grants').filter(({ deleted }) => !deleted)

/** Whether the grant is not what it should be; a module that runs nowhere should have none. */
export function grantBehind (sight: Sight, nodes: NodesOf, at: Registration | undefined): boolean {
  if (!at || nodes.assigned.length === 0) return nodes.assignment !== 'absent' && standingGrants(sight).length > 0
  return isBehind(sight, at, nodes.assigned)
}

const none: Granted = { granted: false, deleted: 0, moved: false }

/** Writes the grant where it is behind, and deletes the module's grants of other fingerprints. */
export async function grant (sight: Sight, nodes: NodesOf, at: Registration | undefined): Promise<Granted> {
  const { module } = sight
  const inputs = await sight.inputs()
  const registered = (await inputs.module(module)).document?.registered
  const now = await readNodes(sight)
  // Everything was seen anew, after a lost write, and is not what was composed.
  if (canonical(now.assigned) !== canonical(nodes.assigned) || !isSameRegistration(registered, at)) {
    return { ...none, moved: true }
  }
  if (nodes.assigned.length === 0 || !at) {
    return nodes.assignment === 'absent' ? none : finish(sight, false, undefined)
  }
  const behind = isBehind(sight, at, nodes.assigned)
  if (behind) {
    const carried: Array<[string, string]> = []
    for (const node of nodes.assigned) {
      const key = `${node}.${module}`
      const entry = sight.target('compositions', key)
      const composed = standingComposition(key, entry)
      if (!entry || composed?.fp !== at.fp || !sameCommit(composed.commit, at.commit)) return { ...none, moved: true }
      carried.push([node, formatRevision({ epoch: sight.epoch, revision: entry.revision })])
    }
    const document: Grant = { module, fp: at.fp, commit: at.commit, nodes: Object.fromEntries(carried) }
    await sight.write('grants', `${module}.${at.fp}`, canonical(document))
  }
  return finish(sight, behind, at)
}

/** Deletes the other grants, and looks whether all that was seen and written still stands. */
async function finish (sight: Sight, granted: boolean, at: Registration | undefined): Promise<Granted> {
  const { module } = sight
  const keep = at && `${module}.${at.fp}`
  const others = standingGrants(sight).filter(({ key }) => key !== keep)
  // Each build leaves a marker, and every run lists them all: the oldest go, many at once, so that most runs have nothing to sweep.
  const markers = sight.all('grants').filter(({ deleted }) => deleted).sort((a, b) => a.revision - b.revision)
  const swept = markers.length > 2 * limits.grantMarkers ? markers.slice(0, -limits.grantMarkers) : []
  const targets = sight.all('compositions').filter(({ key }) => key.endsWith(`.${module}`)).map(({ key }) => ({ bucket: 'compositions' as const, key }))
  const [stale] = await Promise.all([
    sight.moved(keep === undefined ? targets : [...targets, { bucket: 'grants', key: keep }]),
    each(others, async ({ key }) => { await sight.purge('grants', key) }),
    each(swept, ({ key, revision }) => sight.erase('grants', key, revision))
  ])
  if (stale && granted && keep !== undefined && !await stillAt(sight, at)) {
    // A newer registration deletes the grants of others, but it may have looked before this one stood.
    await sight.purge('grants', keep)
    return { granted: false, deleted: others.length, moved: true }
  }
  return { granted, deleted: others.length, moved: false, stale }
}

/** Whether the module is registered as it was composed, read again. */
async function stillAt (sight: Sight, at: Registration | undefined): Promise<boolean> {
  const key = `module.${sight.module}`
  const registered = heldModule(key, await sight.fresh('inventory', key)).document?.registered
  return isSameRegistration(registered, at)
}

const isSameRegistration = (a: Registration | undefined, b: Registration | undefined): boolean =>
  a === undefined || b === undefined ? a === b : a.fp === b.fp && sameCommit(a.commit, b.commit)
