/** Where each module stands: trunk, registration, compositions and grants side by side, one word, and why (DESIGN section 6). */
import type { Grant } from '../../schemas/composition.js'
import type { TakeInRecord } from '../../schemas/take-in.js'
import { limits } from '../limits.js'
import { isName } from '../names.js'
import { Holders } from './bus-users.js'
import { readBinding, readComposition, readGrant, readManifest, readNode, readRecord, readSettings, readTrunk } from './documents.js'
import { factsOf, nodesOf, type At, type BoundOther, type Facts, type Found } from './facts.js'
import { findingsOf } from './findings.js'
import { OnNodes, type OnNode } from './on-node.js'
import type { Picture } from './picture.js'
import { placeOf, placeOnNode, type Placed } from './place.js'
import { Remembered } from './remembered.js'

/** One of a module's nodes: those it is assigned to, and those where it still stands. */
export interface NodeOfModule extends Placed {
  node: string
  assigned: boolean
  /** What stands there; null where nothing does, or what does not fit. */
  composition: (At & { revision: number, user: string }) | null
}

export interface ModuleState extends Placed {
  module: string
  /** Whether the catalogue holds it; what stands of one that it does not is shown on the nodes alone. */
  held: boolean
  trunk: At | null
  registered: At | null
  assignment: Facts['assignment']
  nodes: NodeOfModule[]
  grants: Grant[]
  last: TakeInRecord | null
  /** Documents that do not fit, by bucket and key. */
  problems: Array<{ key: string, why: string }>
}

/**
 * The states of all modules. What is made of some documents is kept until one of them moves, so that little is done where
 * little moved.
 */
export class ModuleStates {
  readonly #nodes = new OnNodes()
  readonly #holders = new Holders()
  readonly #states = new Remembered<ModuleState>()
  readonly #bound = new Remembered<ReadonlyMap<string, readonly string[]>>()

  /** Reads a module's documents ahead, so that a look at all modules can be made in pieces. */
  warm (picture: Picture, module: string): void {
    const { assigned, left } = nodesOf(picture, module)
    this.#nodes.ofAll(picture, module, [...assigned, ...left])
  }

  /** Every module that is held or still stands somewhere, by name. */
  all (picture: Picture): Map<string, ModuleState> {
    const bound = this.#bindings(picture)
    const holder = this.#holders.of(picture, this.#nodes)
    const states = new Map(namesIn(picture).map((module) => [module, this.#of(module, { picture, holder }, bound.get(module) ?? [])]))
    if (this.#states.size > 2 * states.size + limits.pageMost) this.#sweep(picture, states)
    return states
  }

  #of (module: string, { picture, holder }: Pick<Found, 'picture' | 'holder'>, bound: readonly string[]): ModuleState {
    const trunk = picture.get('trunk', module)
    const fp = readTrunk(trunk).document?.fp
    const build = fp !== undefined && picture.get('builds', `done.${module}.${fp}`) !== undefined
    const { assigned, left } = nodesOf(picture, module)
    const nodes = this.#nodes.ofAll(picture, module, [...assigned, ...left].sort())
    const others: BoundOther[] = bound.flatMap((of) => this.#nodes.ofAll(picture, of, nodesOf(picture, of).assigned).map((on) => ({ of, on })))
    const listing = this.#holders.listing(picture, holder, module, nodes)
    const made = [
      ...['module', 'assignment', 'binding'].map((kind) => picture.get('inventory', `${kind}.${module}`)),
      ...assigned.map((node) => picture.get('inventory', `node.${node}`)),
      picture.get('settings', module), trunk, build, picture.get('takeins', module),
      // What others' rows of the user list lack does not concern this one.
      picture.get('inventory', 'seat.broker'), listing.isListed, listing.isRight, ...(listing.isRight ? [] : [holder?.broken, holder?.differs]),
      ...nodes, 'bound', ...others.map(({ on }) => on), 'grants', ...picture.grantsOf.of(module).values()
    ]
    return this.#states.get(module, made, () => stateOf(factsOf({ picture, module, nodes, others, holder, listing, build })))
  }

  /** By module, those that may be bound to what it offers. */
  #bindings (picture: Picture): ReadonlyMap<string, readonly string[]> {
    const bindings = [...picture.all('inventory').values()].filter(({ key, deleted }) => !deleted && key.startsWith('binding.'))
    return this.#bound.get('', bindings, () => {
      const by = new Map<string, string[]>()
      for (const binding of bindings) {
        const of = binding.key.slice('binding.'.length)
        // Whatever is named in it: the take-in composes each that might be bound.
        for (const to of new Set([...binding.text.matchAll(/"([a-z0-9-]+)"/g)].map(([, name = '']) => name))) {
          if (to !== of && isName(of)) by.set(to, [...by.get(to) ?? [], of])
        }
      }
      return by
    })
  }

  #sweep (picture: Picture, states: ReadonlyMap<string, ModuleState>): void {
    const modules = new Set(states.keys())
    this.#states.keepOnly(modules)
    this.#holders.sweep(modules)
    this.#nodes.sweep(picture, new Set([...states.values()].flatMap(({ module, nodes }) => nodes.map(({ node }) => `${node}.${module}`))))
  }
}

/** The modules that are held or still stand somewhere; what is no name is none, whatever stands under it. */
export const namesIn = (picture: Picture): string[] =>
  [...new Set([...picture.named('module'), ...picture.compositionsOf.tokens()])].filter(isName).sort()

function stateOf (facts: Facts): ModuleState {
  const { module, held, trunk, registered, assignment, assigned, nodes, grants, last } = facts
  const placed = placeOf(facts, findingsOf(facts))
  return {
    module,
    held,
    ...placed,
    trunk: trunk ? { fp: trunk.fp, commit: trunk.commit } : null,
    registered: registered ? { fp: registered.fp, commit: registered.commit } : null,
    assignment,
    nodes: nodes.map((one) => ({
      node: one.node, assigned: assigned.includes(one.node), ...placeOnNode(facts, placed, one), composition: compositionOf(one)
    })),
    grants: [...grants.values()].map((one) => readGrant(one).document).filter((one) => one !== undefined),
    last: last ?? null,
    problems: problemsOf(facts)
  }
}

const compositionOf = ({ entry, stands }: OnNode): NodeOfModule['composition'] =>
  entry && stands ? { fp: stands.fp, commit: stands.commit, revision: entry.revision, user: stands.credential.user } : null

function problemsOf ({ picture, module, bad, assigned, nodes, grants }: Facts): ModuleState['problems'] {
  const inInventory = (key: string) => picture.get('inventory', key)
  const problems: Array<[string, string | undefined]> = [
    [`inventory module.${module}`, bad.held ?? readManifest(inInventory(`module.${module}`)).bad],
    [`trunk ${module}`, bad.trunk],
    [`inventory assignment.${module}`, bad.assignment],
    [`inventory binding.${module}`, readBinding(inInventory(`binding.${module}`)).bad],
    [`settings ${module}`, readSettings(picture.get('settings', module)).bad],
    ...assigned.map((node): [string, string | undefined] => [`inventory node.${node}`, readNode(inInventory(`node.${node}`)).bad]),
    ...nodes.map(({ node, entry }): [string, string | undefined] => [`compositions ${node}.${module}`, readComposition(entry).bad]),
    ...[...grants].map(([fp, entry]): [string, string | undefined] => [`grants ${module}.${fp}`, readGrant(entry).bad]),
    [`takeins ${module}`, readRecord(picture.get('takeins', module)).bad]
  ]
  return problems.flatMap(([key, why]) => why === undefined ? [] : [{ key, why }])
}
