/** The broker module's composition beside what it should be: the bus's user list is in it (DESIGN sections 3.7 and 5). */
import type { BusUsers, Composition } from '../../schemas/composition.js'
import type { Seat } from '../../schemas/inventory.js'
import { busUsers, type BusRow } from '../compose/compose.js'
import { readAssignment, readComposition, readManifest, readSeat } from './documents.js'
import { howTheyDiffer, type OnNodes } from './on-node.js'
import type { Picture } from './picture.js'
import { Remembered } from './remembered.js'

/** As every take-in finds it. Undefined where no broker has a seat. */
export interface Holder {
  seat?: Seat
  /** Why it cannot be composed: every take-in fails by it. */
  broken?: string
  /** How the standing composition differs from what should stand, as a clause. */
  differs?: string
  /** The modules in the user list that stands. */
  listed: ReadonlySet<string>
}

const nobody: ReadonlySet<string> = new Set()

export class Holders {
  readonly #remembered = new Remembered<Holder | undefined>()

  of (picture: Picture, nodes: OnNodes): Holder | undefined {
    const entry = picture.get('inventory', 'seat.broker')
    const { document: seat, bad } = readSeat(entry)
    if (bad !== undefined) return this.#remembered.get('', [entry], () => ({ broken: bad, listed: nobody }))
    if (!seat) return undefined
    const own = nodes.of(picture, seat.module, seat.node)
    const assignment = picture.get('inventory', `assignment.${seat.module}`)
    const modules = [...picture.all('inventory').values()].filter(({ key }) => key.startsWith('module.'))
    const made = [entry, own, assignment, ...modules, 'compositions', ...picture.all('compositions').values()]
    return this.#remembered.get('', made, () => {
      const listed = new Set(own.stands?.users?.map(({ module }) => module))
      const { module, node } = seat
      const { document, bad: badAssignment } = readAssignment(assignment)
      const broken = own.broken ?? badAssignment ?? whyNoSeat(seat, own.next !== undefined, document?.nodes ?? [])
      if (broken !== undefined || !own.next) return { seat, broken, listed }
      const next: Composition = { ...own.next, users: usersOf(picture, own.next, own.stands?.users ?? []) }
      const differs = howTheyDiffer(own.stands, next)
      if (differs === undefined) return { seat, listed }
      return { seat, listed, differs: `on ${node}, in the composition of ${module} with the bus's users, ${differs}` }
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
