/** The step that composes the broker module on its seat's node: the bus's user list is in it (DESIGN sections 3.7 and 5). */
import { busUsers, type BusRow } from '../compose/compose.js'
import { checkManifest } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { BadDocument } from '../errors.js'
import type { Entry, MakeCredential } from '../ports.js'
import type { Revision } from '../revision.js'
import { CompositionSchema, type BusUsers, type Composition } from '../../schemas/composition.js'
import type { Seat } from '../../schemas/inventory.js'
import { composition, readInputs, standingComposition } from './compose-nodes.js'
import { heldModule, standing, type Inventory } from './inventory.js'
import type { NodesOf } from './take.js'

export interface HolderComposed {
  seat: Seat
  /** The revision that carries the user list, written now or before. */
  revision: Revision
  written: boolean
  /** The user list differs from the one that stood before. */
  usersChanged: boolean
}

/** Undefined where no broker has a seat. Throws Conflict where another wrote it meanwhile. */
export async function composeHolder (inventory: Inventory, makeCredential: MakeCredential): Promise<HolderComposed | undefined> {
  const { document: seat } = await inventory.seat()
  if (!seat) return undefined
  const { node, module } = seat
  const [epoch, target] = await Promise.all([inventory.store.epoch('compositions'), standingComposition(inventory, node, module)])
  const [inputs, { document: assignment }, known, compositions, modules] = await Promise.all([
    readInputs(inventory, module), inventory.assignment(module), inventory.node(node),
    inventory.store.readAll('compositions', '*.*'), inventory.store.readAll('inventory', 'module.*')
  ])
  if (!inputs) throw new BadDocument(`the broker module ${module}, which has its seat on ${node}, is not registered: take it in first`)
  if (!assignment?.nodes.includes(node)) {
    throw new BadDocument(`the broker module ${module} has its seat on ${node}, but assignment.${module} does not name that node`)
  }
  const own = composition(node, known.document, inputs, target.document, makeCredential)
  const users = usersOf(own, compositions, modules, target.document?.users ?? [])
  const next: Composition = { ...own, users }
  const usersChanged = canonical(target.document?.users ?? []) !== canonical(users)
  if (target.document && canonical(target.document) === canonical(next)) {
    return { seat, revision: { epoch, revision: target.revision }, written: false, usersChanged: false }
  }
  const revision = await inventory.store.write('compositions', `${node}.${module}`, canonical(next), target.revision)
  return { seat, revision: { epoch, revision }, written: true, usersChanged }
}

/** Whether the user list holds a module that runs nowhere any more: a run ended between what it removed and the list. */
export async function isListedStill (inventory: Inventory, module: string, nodes: NodesOf): Promise<boolean> {
  if (nodes.assignment === 'absent') return false // absence alone removes nothing (DESIGN section 5)
  const { document: seat } = await inventory.seat()
  if (!seat) return false
  const { document } = await standingComposition(inventory, seat.node, seat.module)
  return document?.users?.some((row) => row.module === module) ?? false
}

/** Every module's users with what its manifest lets them do. A module whose documents are broken keeps the row it had. */
function usersOf (own: Composition, compositions: Map<string, Entry>, modules: Map<string, Entry>, before: BusUsers[]): BusUsers[] {
  const byModule = new Map<string, Composition[]>()
  const add = (one: Composition): void => { byModule.set(one.module, [...byModule.get(one.module) ?? [], one]) }
  // The holder's own user is in the list as well, and its composition is not written yet.
  add(own)
  for (const [key, entry] of compositions) {
    if (entry.deleted || key === `${own.node}.${own.module}`) continue
    try {
      const { document } = standing('compositions', key, entry, CompositionSchema)
      if (document && key === `${document.node}.${document.module}`) add(document)
    } catch (error) {
      if (!(error instanceof BadDocument)) throw error // a composition that does not fit opens nothing
    }
  }
  const rows: BusRow[] = []
  for (const [module, held] of byModule) {
    const key = `module.${module}`
    const kept = before.find((row) => row.module === module) ?? { module, publish: [], subscribe: [], users: [] }
    try {
      const registered = heldModule(key, modules.get(key)).document?.registered
      // A registration that is gone without a marker is an accident: who worked before works on (DESIGN section 5).
      if (!registered) { rows.push({ module, kept, compositions: held }); continue }
      checkManifest(module, registered.manifest)
      rows.push({ module, manifest: registered.manifest, compositions: held })
    } catch (error) {
      if (!(error instanceof BadDocument)) throw error
      rows.push({ module, kept, compositions: held })
    }
  }
  return busUsers(rows)
}
