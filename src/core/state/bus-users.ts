/** The broker module's composition beside what it should be: the bus's user list is in it (DESIGN sections 3.7 and 5). */
import type { BusUsers, Composition } from '../../schemas/composition.js'
import type { Registered, Seat } from '../../schemas/inventory.js'
import { busUsers, type BusRow } from '../compose/compose.js'
import { canonical } from '../documents.js'
import { readAssignment, readComposition, readHeld, readManifest, readSeat } from './documents.js'
import { howTheyDiffer, type OnNode, type OnNodes } from './on-node.js'
import type { Picture } from './picture.js'
import { Remembered } from './remembered.js'

/** As every take-in finds it. Undefined where no broker has a seat. */
export interface Holder {
  seat?: Seat
  /** Why it cannot be composed: every take-in fails by it. */
  broken?: string
  /** How the standing composition differs from what should stand, as a clause. */
  differs?: string
  /** The composition that stands; undefined where none does, or what does not fit. */
  stands?: Composition | undefined
  /** The user list that stands, by module. */
  rows: ReadonlyMap<string, BusUsers>
}

const nobody: ReadonlyMap<string, BusUsers> = new Map()

/** How the user list that stands concerns one module, as its take-in finds it. */
export interface Listing {
  isListed: boolean
  /** It says of the module what it should: nothing of it is for the module's take-in to write. The broker's own composes it whole. */
  isRight: boolean
}

function listingOf (holder: Holder | undefined, registered: Registered | undefined, nodes: readonly OnNode[], module: string): Listing {
  const stands = holder?.rows.get(module)
  const isOwn = holder?.seat?.module === module
  if (!holder?.stands || !registered || isOwn) return { isListed: stands !== undefined, isRight: false }
  const compositions = nodes.flatMap(({ node, stands }) => stands?.node === node ? [stands] : [])
  const [row] = busUsers([{ module, manifest: registered.manifest, compositions }])
  return { isListed: stands !== undefined, isRight: canonical(stands ?? null) === canonical(row ?? null) }
}

export class Holders {
  readonly #remembered = new Remembered<Holder | undefined>()
  readonly #listings = new Remembered<Listing>()

  /** How the list concerns a module, whose nodes these are. */
  listing (picture: Picture, holder: Holder | undefined, module: string, nodes: readonly OnNode[]): Listing {
    const held = picture.get('inventory', `module.${module}`)
    const made = [holder?.rows.get(module), holder?.stands !== undefined, holder?.seat?.module, held, ...nodes]
    return this.#listings.get(module, made, () => listingOf(holder, readHeld(held).document?.registered, nodes, module))
  }

  /** Forgets modules that are not there any more. */
  sweep (modules: ReadonlySet<string>): void { this.#listings.keepOnly(modules) }

  of (picture: Picture, nodes: OnNodes): Holder | undefined {
    const entry = picture.get('inventory', 'seat.broker')
    const { document: seat, bad } = readSeat(entry)
    if (bad !== undefined) return this.#remembered.get('', [entry], () => ({ broken: bad, rows: nobody }))
    if (!seat) return undefined
    const own = nodes.of(picture, seat.module, seat.node)
    const assignment = picture.get('inventory', `assignment.${seat.module}`)
    const modules = [...picture.all('inventory').values()].filter(({ key }) => key.startsWith('module.'))
    const made = [entry, own, assignment, ...modules, 'compositions', ...picture.all('compositions').values()]
    return this.#remembered.get('', made, () => {
      const { stands } = own
      const found = { seat, stands, rows: new Map(stands?.users?.map((row) => [row.module, row])) }
      const { module, node } = seat
      const { document, bad: badAssignment } = readAssignment(assignment)
      const broken = own.broken ?? badAssignment ?? whyNoSeat(seat, own.next !== undefined, document?.nodes ?? [])
      if (broken !== undefined || !own.next) return { ...found, broken }
      const next: Composition = { ...own.next, users: usersOf(picture, own.next, stands?.users ?? []) }
      const differs = howTheyDiffer(stands, next)
      if (differs === undefined) return found
      return { ...found, differs: `on ${node}, in the composition of ${module} with the bus's users, ${differs}` }
    })
  }
}

function whyNoSeat ({ module, node }: Seat, isRegistered: boolean, nodes: string[]): string | undefined {
  if (!isRegistered) return `the broker module ${module}, which has its seat on ${node}, is not registered: take it in first`
  if (!nodes.includes(node)) return `the broker module ${module} has its seat on ${node}, but assignment.${module} does not name that node`
  return undefined
}

/** Every module's users with what its manifest lets them do; one whose registration is broken keeps the row it had. */
function usersOf (picture: Picture, own: Composition, before: BusUsers[]): BusUsers[] {
  const byModule = new Map<string, Composition[]>([[own.module, [own]]])
  for (const [key, entry] of picture.all('compositions')) {
    const { document } = readComposition(entry)
    if (!document || key === `${own.node}.${own.module}` || key !== `${document.node}.${document.module}`) continue
    const held = byModule.get(document.module)
    if (held) held.push(document)
    else byModule.set(document.module, [document])
  }
  return busUsers([...byModule].map(([module, compositions]): BusRow => {
    const kept = before.find((row) => row.module === module) ?? { module, publish: [], subscribe: [], users: [] }
    const { document: manifest } = readManifest(picture.get('inventory', `module.${module}`))
    return manifest ? { module, manifest, compositions } : { module, kept, compositions }
  }))
}
