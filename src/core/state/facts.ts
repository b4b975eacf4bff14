/** All that is known of one module: what a take-in of it would read. */
import type { Registered } from '../../schemas/inventory.js'
import type { TakeInRecord } from '../../schemas/take-in.js'
import { sameCommit } from '../names.js'
import type { Entry } from '../ports.js'
import type { NodesOf, StepDone } from '../take-in/take.js'
import type { Holder, Listing } from './bus-users.js'
import { isHeld, judgeHeld, readAssignment, readRecord, readTrunk } from './documents.js'
import type { OnNode } from './on-node.js'
import type { Picture } from './picture.js'

export interface At { fp: string, commit: string }

/** A composition of another module, which a take-in of this one composes with it. */
export interface BoundOther { of: string, on: OnNode }

/** What was looked up for a module before it is judged. */
export interface Found {
  picture: Picture
  module: string
  /** The nodes it is assigned to, and those where it still stands. */
  nodes: OnNode[]
  /** Those bound to what it offers. */
  others: BoundOther[]
  holder: Holder | undefined
  listing: Listing
  /** Whether the build of the trunk's fingerprint is there. */
  build: boolean
}

export interface Facts extends Found, NodesOf {
  held: boolean
  /** The catalogue held it, and an operator removed it. */
  removed: boolean
  registered: Registered | undefined
  /** The trunk value as it stands, and the one that is taken in: of a form that is. */
  trunk: At | undefined
  aim: At | undefined
  /** The aim is registered; and: it is not, and its build is not there. */
  isAt: boolean
  awaits: boolean
  grants: ReadonlyMap<string, Entry>
  last: TakeInRecord | undefined
  /** The step that the last run worth a record failed at. */
  failed: StepDone | undefined
  /** Why the documents of the first steps do not fit. */
  bad: { held: string | undefined, trunk: string | undefined, assignment: string | undefined }
}

export function factsOf (found: Found): Facts {
  const { picture, module, build } = found
  const entry = picture.get('inventory', `module.${module}`)
  const held = judgeHeld(entry)
  const registered = held.document?.registered
  const trunk = readTrunk(picture.get('trunk', module))
  const aim = trunk.document?.old ? undefined : trunk.document
  const isAt = registered !== undefined && aim !== undefined && registered.fp === aim.fp && sameCommit(registered.commit, aim.commit)
  const assignment = picture.get('inventory', `assignment.${module}`)
  const last = readRecord(picture.get('takeins', module)).document
  return {
    ...found,
    ...nodesOf(picture, module),
    held: isHeld(picture, module),
    removed: entry?.deleted === true,
    registered,
    trunk: trunk.document,
    aim,
    isAt,
    awaits: aim !== undefined && !isAt && !build,
    grants: picture.grantsOf.of(module),
    last,
    failed: last?.outcome === 'step-failed' ? last.steps.find(({ error }) => error !== undefined) : undefined,
    bad: { held: held.bad, trunk: trunk.bad, assignment: readAssignment(assignment).bad }
  }
}

/** Where a module runs and where it still stands, as the take-in's step `nodesOf` finds it (DESIGN section 3.5). */
export function nodesOf (picture: Picture, module: string): NodesOf {
  const entry = picture.get('inventory', `assignment.${module}`)
  const removed = picture.get('inventory', `module.${module}`)?.deleted === true
  const nodes = isHeld(picture, module) ? readAssignment(entry).document?.nodes : undefined
  const assigned = [...new Set(nodes)].sort()
  return {
    assignment: entry && !entry.deleted ? 'stands' : entry || removed ? 'deleted' : 'absent',
    assigned,
    left: [...picture.compositionsOf.of(module).keys()].filter((node) => !assigned.includes(node)).sort()
  }
}

export const isSeat = (holder: Holder | undefined, module: string, node: string): boolean =>
  holder?.seat?.module === module && holder.seat.node === node
