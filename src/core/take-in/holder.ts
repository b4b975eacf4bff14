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

/** The broker module's composition as it stood before all that the next one is computed from was read. */
export interface HolderTarget {
  key: string
  entry: Entry | undefined
  /** Creation time in ms of the bucket it stood in, where it was not read just now. */
  epoch?: number
}

/** The same, read now; undefined where no broker has a seat. `probably` is the key that is read at once. */
export async function readTarget (store: Store, probably: string | undefined): Promise<HolderTarget | undefined> {
  const read = async (key: string): Promise<HolderTarget> => ({ key, entry: await store.read('compositions', key) })
  const [entry, first] = await Promise.all([store.read('inventory', 'seat.broker'), probably === undefined ? undefined : read(probably)])
  const seat = seatIn(entry)
  if (!seat) return undefined
  const key = `${seat.node}.${seat.module}`
  return first?.key === key ? first : read(key)
}

/** Composes the broker module's node. Undefined where no broker has a seat. Throws Conflict where another wrote it meanwhile. */
export async function composeHolder (
  store: Store, target: HolderTarget, makeCredential: MakeCredential
): Promise<HolderComposed | undefined> {
  const once = new Once(store)
  const inventory = new Inventory(once)
  const [at, of] = target.key.split('.')
  const [seatEntry, compositions, modules] = await Promise.all([
    once.read('inventory', 'seat.broker'), store.readAll('compositions', '*.*'), store.readAll('inventory', 'module.*'),
    once.read('inventory', `assignment.${of}`), once.read('inventory', `node.${at}`)
  ])
  const { epoch } = compositions
  for (const entry of modules.values()) once.know('inventory', entry)
  const { document: seat } = standing('inventory', 'seat.broker', seatEntry, SeatSchema)
  if (!seat) return undefined
  const { node, module } = seat
  const key = `${node}.${module}`
  if (target.epoch !== undefined && target.epoch !== epoch) throw new Conflict('the bucket compositions was made anew')
  if (key !== target.key) throw new Conflict('inventory seat.broker was written by another')
  const [inputs, { document: assignment }, known] = await Promise.all([
    readInputs(inventory, module), inventory.assignment(module), inventory.node(node)
  ])
  if (!inputs) throw new BadDocument(`the broker module ${module}, which has its seat on ${node}, is not registered: take it in first`)
  if (!assignment?.nodes.includes(node)) {
    throw new BadDocument(`the broker module ${module} has its seat on ${node}, but assignment.${module} does not name that node`)
  }
  const before = standingComposition(key, target.entry)
  const own = composition(node, known.document, inputs, before, makeCredential)
  const users = usersOf(own, compositions, modules, before?.users ?? [])
  const next: Composition = { ...own, users }
  const text = canonical(next)
  if (before && target.entry && canonical(before) === text) {
    // Nothing is written, so nothing says whether another came between; and it may be long ago that this was seen to stand.
    const now = await store.read('compositions', key)
    if (now?.revision !== target.entry.revision || now.text !== target.entry.text) throw new Conflict(`compositions ${key} was written by another`)
    return { seat, revision: { epoch, revision: target.entry.revision }, entry: target.entry, written: false, sameUsersAs: undefined }
  }
  const revision = await store.write('compositions', key, text, target.entry?.revision ?? 0)
  const isSame = before !== undefined && canonical(before.users ?? []) === canonical(users)
  return {
    seat,
    revision: { epoch, revision },
    entry: { key, revision, deleted: false, text },
    written: true,
    sameUsersAs: isSame ? target.entry?.revision : undefined
  }
}

/** The seat and the composition of its module as a run finds them; undefined where no broker has a seat. */
export async function standingHolder (sight: Sight): Promise<{ seat: Seat, revision: Revision, composition: Composition | undefined } | undefined> {
  const inputs = await sight.inputs()
  const { document: seat } = await inputs.seat()
  if (!seat) return undefined
  const key = `${seat.node}.${seat.module}`
  const entry = await inputs.store.read('compositions', key)
  return { seat, revision: { epoch: sight.epoch, revision: entry?.revision ?? 0 }, composition: standingComposition(key, entry) }
}

/** Whether the user list holds a module that runs nowhere any more: a run ended between what it removed and the list. */
export function isListedStill (holder: Composition | undefined, module: string, nodes: NodesOf): boolean {
  if (nodes.assignment === 'absent') return false // absence alone removes nothing (DESIGN section 5)
  return holder?.users?.some((row) => row.module === module) ?? false
}

/**
 * Whether the user list that stands says of the module what it should: then nothing of the list is this run's to write, and the
 * compositions of the whole mesh need not be read. Whatever else the list lacks is for the runs of those it lacks.
 */
export async function isListedRight (holder: Composition | undefined, sight: Sight): Promise<boolean> {
  const { module } = sight
  const registered = (await (await sight.inputs()).module(module)).document?.registered
  // The broker module's own run composes the list whole.
  if (!holder || !registered || holder.module === module) return false
  const compositions: Composition[] = []
  for (const entry of sight.all('compositions')) {
    const document = standingComposition(entry.key, entry)
    if (document && entry.key === `${document.node}.${module}`) compositions.push(document)
  }
  const [row] = busUsers([{ module, manifest: registered.manifest, compositions }])
  return canonical(holder.users?.find((one) => one.module === module) ?? null) === canonical(row ?? null)
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
