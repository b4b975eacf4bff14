/** The step that composes the broker module on its seat's node: the bus's user list is in it (DESIGN sections 3.7 and 5). */
import { busUsers, type BusRow } from '../compose/compose.js'
import { checkManifest } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { BadDocument, Conflict } from '../errors.js'
import type { Entry, MakeCredential, Store } from '../ports.js'
import type { Revision } from '../revision.js'
import { CompositionSchema, type BusUsers, type Composition } from '../../schemas/composition.js'
import { SeatSchema, type Seat } from '../../schemas/inventory.js'
import { composition, readInputs, standingComposition } from './compose-nodes.js'
import { seatIn } from './hints.js'
import { heldModule, Inventory, standing } from './inventory.js'
import { Once } from './once.js'
import type { Sight } from './sight.js'
import type { NodesOf } from './take.js'

export interface HolderComposed {
  seat: Seat
  /** The revision that carries the user list, written now or before. */
  revision: Revision
  /** The entry at that revision, which the next compose need not read. */
  entry: Entry
  written: boolean
  /** The revision before, where this one was written and the users are the same. */
  sameUsersAs: number | undefined
}

/** What is known of the broker module's composition: an entry that stood at some time, and where. */
export interface HolderTarget { key: string, entry: Entry | undefined }

/** The seat and the composition of its module as a run has seen them; undefined where no broker has a seat. */
export async function holderTarget (sight: Sight): Promise<HolderTarget | undefined> {
  const { document: seat } = await (await sight.inputs()).seat()
  if (!seat) return undefined
  const key = `${seat.node}.${seat.module}`
  return { key, entry: sight.target('compositions', key) }
}

/**
 * Composes the broker module's node. `target` is what is known of it from before, undefined: it is read first. Undefined where no
 * broker has a seat. Throws Conflict where another wrote it meanwhile.
 */
export async function composeHolder (store: Store, target: HolderTarget | undefined, makeCredential: MakeCredential): Promise<HolderComposed | undefined> {
  // What is written, before what it is written from: all that comes after it is read after it.
  const stands = target ?? await readTarget(store)
  const once = new Once(store)
  const inventory = new Inventory(once)
  const [of = '', at = ''] = [stands?.key.slice(stands.key.indexOf('.') + 1), stands?.key.slice(0, stands.key.indexOf('.'))]
  const [seatEntry, epoch, compositions, modules] = await Promise.all([
    once.read('inventory', 'seat.broker'), once.epoch('compositions'), store.readAll('compositions', '*.*'), once.readAll('inventory', 'module.*'),
    ...(stands ? [inventory.assignment(of), inventory.settings(of), inventory.binding(of), inventory.node(at)].map(unlessBad) : [])
  ])
  const { document: seat } = standing('inventory', 'seat.broker', seatEntry, SeatSchema)
  if (!seat) return undefined
  const { node, module } = seat
  const key = `${node}.${module}`
  if (key !== stands?.key) throw new Conflict('inventory seat.broker was written by another')
  const [inputs, { document: assignment }, known] = await Promise.all([readInputs(inventory, module), inventory.assignment(module), inventory.node(node)])
  if (!inputs) throw new BadDocument(`the broker module ${module}, which has its seat on ${node}, is not registered: take it in first`)
  if (!assignment?.nodes.includes(node)) {
    throw new BadDocument(`the broker module ${module} has its seat on ${node}, but assignment.${module} does not name that node`)
  }
  const before = standingComposition(key, stands.entry)
  const own = composition(node, known.document, inputs, before, makeCredential)
  const users = usersOf(own, compositions, modules, before?.users ?? [])
  const next: Composition = { ...own, users }
  const text = canonical(next)
  if (before && stands.entry && canonical(before) === text) {
    // Nothing is written, so nothing says whether another came between; and it may be long ago that this was seen to stand.
    const now = await store.read('compositions', key)
    if (now?.revision !== stands.entry.revision || now.text !== stands.entry.text) throw new Conflict(`compositions ${key} was written by another`)
    return { seat, revision: { epoch, revision: stands.entry.revision }, entry: stands.entry, written: false, sameUsersAs: undefined }
  }
  const revision = await store.write('compositions', key, text, stands.entry?.revision ?? 0)
  const isSame = before !== undefined && canonical(before.users ?? []) === canonical(users)
  return {
    seat, revision: { epoch, revision }, entry: { key, revision, deleted: false, text }, written: true, sameUsersAs: isSame ? stands.entry?.revision : undefined
  }
}

async function readTarget (store: Store): Promise<HolderTarget | undefined> {
  const seat = seatIn(await store.read('inventory', 'seat.broker'))
  if (!seat) return undefined
  const key = `${seat.node}.${seat.module}`
  return { key, entry: await store.read('compositions', key) }
}

/** Read for what comes later, which judges it. */
const unlessBad = (read: Promise<unknown>): Promise<unknown> => read.catch((error: unknown) => {
  if (!(error instanceof BadDocument)) throw error
})

/** Whether the user list holds a module that runs nowhere any more: a run ended between what it removed and the list. */
export async function isListedStill (sight: Sight, nodes: NodesOf): Promise<boolean> {
  if (nodes.assignment === 'absent') return false // absence alone removes nothing (DESIGN section 5)
  const holder = await holderTarget(sight)
  return (holder && standingComposition(holder.key, holder.entry))?.users?.some((row) => row.module === sight.module) ?? false
}

/** Every module's users with what its manifest lets them do. A module whose documents are broken keeps the row it had. */
function usersOf (own: Composition, compositions: Map<string, Entry>, modules: Map<string, Entry>, before: BusUsers[]): BusUsers[] {
  const byModule = new Map<string, Composition[]>()
  const add = (one: Composition): void => {
    const held = byModule.get(one.module)
    if (held) held.push(one)
    else byModule.set(one.module, [one])
  }
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
  const rowsBefore = new Map(before.map((row) => [row.module, row]))
  for (const [module, held] of byModule) {
    const key = `module.${module}`
    const kept = rowsBefore.get(module) ?? { module, publish: [], subscribe: [], users: [] }
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
