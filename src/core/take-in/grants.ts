/** The last step: the grant, which says which composition revisions carried the fingerprint (DESIGN section 3.8). */
import { canonical } from '../documents.js'
import { BadDocument } from '../errors.js'
import { sameCommit } from '../names.js'
import { formatRevision } from '../revision.js'
import type { Grant } from '../../schemas/composition.js'
import type { Inventory, Standing } from './inventory.js'
import { readNodes } from './compose-nodes.js'
import { each } from './each.js'
import type { Granted, NodesOf, Registration } from './take.js'

/** Behind is a grant of another fingerprint, commit or set of nodes; not one whose compositions were merely written again. */
function isBehind (grant: Grant | undefined, { fp, commit }: Registration, nodes: readonly string[]): boolean {
  return grant?.fp !== fp || !sameCommit(grant.commit, commit) ||
    canonical(Object.keys(grant.nodes).sort()) !== canonical([...nodes].sort())
}

async function standingGrant (inventory: Inventory, module: string, fp: string): Promise<Standing<Grant>> {
  try {
    return await inventory.grant(module, fp)
  } catch (error) {
    if (!(error instanceof BadDocument)) throw error
    // One that does not fit says nothing: it is written anew over its revision.
    const entry = await inventory.store.read('grants', `${module}.${fp}`)
    return { revision: entry?.revision ?? 0, deleted: entry?.deleted ?? false, document: undefined }
  }
}

/** Whether the grant is not what it should be; a module that runs nowhere should have none. */
export async function grantBehind (inventory: Inventory, module: string, nodes: NodesOf, at: Registration | undefined): Promise<boolean> {
  if (!at || nodes.assigned.length === 0) {
    return nodes.assignment !== 'absent' && [...(await inventory.store.readAll('grants', `${module}.*`)).values()].some(({ deleted }) => !deleted)
  }
  return isBehind((await standingGrant(inventory, module, at.fp)).document, at, nodes.assigned)
}

const none: Granted = { granted: false, deleted: 0, moved: false }

/** Writes the grant where it is behind, and deletes the module's grants of other fingerprints. */
export async function grant (inventory: Inventory, module: string, nodes: NodesOf, at: Registration | undefined): Promise<Granted> {
  const { store } = inventory
  if (nodes.assigned.length === 0 || !at) {
    return nodes.assignment === 'absent' ? none : { ...none, deleted: await deleteOthers(inventory, module, undefined) }
  }
  const target = await standingGrant(inventory, module, at.fp)
  const registered = async (): Promise<boolean> => {
    const now = (await inventory.module(module)).document?.registered
    return now?.fp === at.fp && sameCommit(now.commit, at.commit)
  }
  const [stands, now, epoch, compositions] = await Promise.all([
    registered(), readNodes(inventory, module), store.epoch('compositions'),
    Promise.all(nodes.assigned.map(async (node) => ({ node, ...await inventory.composition(node, module) })))
  ])
  if (!stands || canonical(now.assigned) !== canonical(nodes.assigned)) return { ...none, moved: true }
  if (!isBehind(target.document, at, nodes.assigned)) return { ...none, deleted: await deleteOthers(inventory, module, at.fp) }
  if (compositions.some(({ document }) => document?.fp !== at.fp || !sameCommit(document.commit, at.commit))) return { ...none, moved: true }
  const carried = compositions.map(({ node, revision }): [string, string] => [node, formatRevision({ epoch, revision })])
  const document: Grant = { module, fp: at.fp, commit: at.commit, nodes: Object.fromEntries(carried) }
  const written = await store.write('grants', `${module}.${at.fp}`, canonical(document), target.revision)
  // A newer registration deletes the grants of others, but it may have looked before this one stood.
  if (!await registered()) {
    await store.purge('grants', `${module}.${at.fp}`, written)
    return { ...none, moved: true }
  }
  return { ...none, granted: true, deleted: await deleteOthers(inventory, module, at.fp) }
}

async function deleteOthers ({ store }: Inventory, module: string, keep: string | undefined): Promise<number> {
  const others = [...(await store.readAll('grants', `${module}.*`)).values()].filter(({ deleted, key }) => !deleted && key !== `${module}.${keep}`)
  await each(others, async ({ key, revision }) => { await store.purge('grants', key, revision) })
  return others.length
}
