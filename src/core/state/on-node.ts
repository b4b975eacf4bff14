/** One module on one node: the composition that stands beside the one that should, and how they differ. */
import type { Composition } from '../../schemas/composition.js'
import type { Registered } from '../../schemas/inventory.js'
import { composeModule, Unresolvable } from '../compose/compose.js'
import { diffComposition } from '../compose/diff.js'
import { own } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { limits } from '../limits.js'
import { isName, printable } from '../names.js'
import type { Entry, MakeCredential } from '../ports.js'
import { judgeHeld, readBinding, readComposition, readHeld, readManifest, readNode, readSettings } from './documents.js'
import type { Picture } from './picture.js'
import { Remembered } from './remembered.js'
import { ringOf } from './ring.js'

export interface OnNode {
  node: string
  entry: Entry | undefined
  /** What stands; undefined where nothing does, or what does not fit. */
  stands: Composition | undefined
  /** What should stand; undefined where the values cannot be resolved. */
  next?: Composition
  /** Why they cannot be: a take-in of the module would fail by it. */
  broken?: string
  /** How what stands differs from what should, as a clause. */
  differs?: string
}

/** Stands for the user that a take-in would make: nothing is made for a look. */
export const noCredential: MakeCredential = (to) => ({ user: `U${'A'.repeat(55)}`, sealed: '', by: `X${'A'.repeat(55)}`, to })

/** What composing a module on any node depends on, or why it cannot be composed at all. */
export type Inputs = Pick<Parameters<typeof composeModule>[0], 'registered' | 'settings' | 'binding' | 'offersOf' | 'cycle'> | { broken: string } | undefined

export class OnNodes {
  readonly #inputs = new Remembered<Inputs>()
  readonly #nodes = new Remembered<OnNode>()

  /** Undefined where the module is not registered. The same object as long as nothing of it moved. */
  inputs (picture: Picture, module: string): Inputs {
    const held = picture.get('inventory', `module.${module}`)
    const settings = picture.get('settings', module)
    const binding = picture.get('inventory', `binding.${module}`)
    const registered = judgeHeld(held).document?.registered
    const offering = registered ? offeringOf(registered, readBinding(binding).document ?? {}) : []
    const offers = offering.map((name) => picture.get('inventory', `module.${name}`))
    const ring = registered ? ringOf(picture, module) : undefined
    return this.#inputs.get(module, [held, settings, binding, ring?.join(), ...offers], () => {
      const broken = judgeHeld(held).bad ?? (registered && whyUnread(registered, held, settings, binding))
      if (broken !== undefined) return { broken }
      if (!registered) return undefined
      const found = new Map(offering.map((name, at) => [name, readHeld(offers[at])]))
      const bad = [...found.values()].find((one) => one.bad !== undefined)?.bad
      if (bad !== undefined) return { broken: bad }
      const offersOf = (name: string): Record<string, unknown> | undefined => {
        const manifest = found.get(name)?.document?.registered?.manifest
        return manifest && (manifest.offers ?? {})
      }
      const [{ document: set = {} }, { document: bound = {} }] = [readSettings(settings), readBinding(binding)]
      return { registered, settings: set, binding: bound, offersOf, cycle: ring }
    })
  }

  /** A node that the module is assigned to, or where it stands. `inputs` are the module's, where they are known already. */
  of (picture: Picture, module: string, node: string, inputs = this.inputs(picture, module)): OnNode {
    const document = picture.get('inventory', `node.${node}`)
    const entry = picture.compositionsOf.of(module).get(node)
    return this.#nodes.get(`${node}.${module}`, [inputs, document, entry], () => judge(node, inputs, document, entry))
  }

  /** The same for several nodes. */
  ofAll (picture: Picture, module: string, nodes: readonly string[]): OnNode[] {
    const inputs = this.inputs(picture, module)
    return nodes.map((node) => this.of(picture, module, node, inputs))
  }

  /** Forgets what is kept of modules and nodes that are not there any more. */
  sweep (picture: Picture, present: ReadonlySet<string>): void {
    const modules = new Set(picture.named('module'))
    this.#inputs.keepOnly(modules)
    this.#nodes.keepOnly(present)
  }
}

/** Why what a module is composed from does not fit. What its manifest does not declare is not read. */
function whyUnread ({ manifest }: Registered, held?: Entry, settings?: Entry, binding?: Entry): string | undefined {
  const { config = {}, bound = {} } = manifest
  const [hasConfig, hasBound] = [config, bound].map((keys) => Object.keys(keys).length > 0)
  return readManifest(held).bad ?? (hasConfig ? readSettings(settings).bad : undefined) ?? (hasBound ? readBinding(binding).bad : undefined)
}

/** The other modules whose offers are read. */
function offeringOf (registered: Registered, binding: Record<string, { module: string }>): string[] {
  const to = Object.keys(registered.manifest.bound ?? {}).map((key) => own(binding, key)?.module)
  return [...new Set(to)].filter((name): name is string => isName(name) && name !== registered.module).sort()
}

function judge (node: string, inputs: Inputs, document: Entry | undefined, entry: Entry | undefined): OnNode {
  const { document: stands, bad } = readComposition(entry)
  const base = { node, entry, stands }
  if (!inputs) return base
  if ('broken' in inputs) return { ...base, broken: inputs.broken }
  const known = readNode(document)
  if (known.bad !== undefined) return { ...base, broken: known.bad }
  if (!known.document) return { ...base, broken: `there is no inventory node.${node}, whose curve key the credential of ${inputs.registered.module} is sealed to` }
  let next: Composition
  try {
    next = composeModule({ ...inputs, node: known.document, standing: stands, makeCredential: noCredential })
  } catch (error) {
    if (error instanceof Unresolvable) return { ...base, broken: error.message }
    throw error
  }
  if (bad !== undefined) return { ...base, next, differs: bad }
  const differs = howTheyDiffer(stands, next)
  return differs === undefined ? { ...base, next } : { ...base, next, differs }
}

/** How two compositions differ, as a clause that names the paths and no value; undefined where they are the same. */
export function howTheyDiffer (stands: Composition | undefined, next: Composition): string | undefined {
  if (!stands) return 'nothing stands there yet'
  if (canonical(stands) === canonical(next)) return undefined
  const { credential, changes } = diffComposition(stands, next)
  const paths = [...credential === 'new' ? ['/credential'] : [], ...changes.map(({ path }) => printable(path))]
  const told = paths.slice(0, limits.stateDifferences)
  if (told.length === 0) return 'what stands has members that a composition has not'
  return `what stands differs at ${told.join(', ')}${paths.length > told.length ? ` and ${paths.length - told.length} more` : ''}`
}
