/** Inventory in, compositions and the bus's user list out. Pure: the same inventory gives the same bytes (DESIGN section 3). */
import type { BusUsers, Composition } from '../../schemas/composition.js'
import type { Binding, NodeDocument, Registered, Settings } from '../../schemas/inventory.js'
import type { Manifest } from '../../schemas/manifest.js'
import { limits } from '../limits.js'
import { quoted } from '../names.js'
import type { MakeCredential } from '../ports.js'
import { checkSetting, own } from './manifest.js'

/** A module whose values cannot all be resolved on a node: it keeps the composition it has (DESIGN section 3). Each reason is a sentence. */
export class Unresolvable extends Error {
  override readonly name = 'Unresolvable'
  readonly reasons: readonly string[]

  constructor (module: string, node: string, reasons: readonly string[]) {
    const told = reasons.slice(0, limits.unresolvableReasons)
    const more = reasons.length > told.length ? `; and ${reasons.length - told.length} more` : ''
    super(`${module} cannot be composed on ${node}: ${told.join('; ')}${more}`)
    this.reasons = told
  }
}

/** All that one composition depends on. */
export interface ComposeInput {
  node: NodeDocument
  registered: Registered
  settings: Settings
  binding: Binding
  /** What a registered module offers; undefined where there is no such module. */
  offersOf: (module: string) => Record<string, unknown> | undefined
  /** The ring of bindings that this module closed, as a chain of names: see `closedRing`. */
  cycle?: readonly string[] | undefined
  standing?: Composition | undefined
  makeCredential: MakeCredential
}

/** What a node is to run of a module. Throws Unresolvable with every reason; a credential is made only where there is none. */
export function composeModule ({ node, registered, settings, binding, offersOf, cycle, standing, makeCredential }: ComposeInput): Composition {
  const { module, fp, commit, manifest } = registered
  const reasons: string[] = []
  const config = resolveConfig(manifest, settings, reasons)
  const bound = resolveBound(manifest, binding, (name) => name === module ? manifest.offers ?? {} : offersOf(name), reasons)
  if (cycle) reasons.push(`its bindings go round, ${cycle.join(' → ')}, since binding.${module} was written last: bind one of these to another module`)
  if (reasons.length > 0) throw new Unresolvable(module, node.node, reasons)
  // A key that the node no longer has opens nothing: the module needs a user whose seed can be read.
  const credential = standing?.credential.to === node.curve ? standing.credential : makeCredential(node.curve)
  return { node: node.node, module, fp, commit, config, bound, secrets: [...manifest.secrets ?? []].sort(), credential }
}

// Both maps are made from entries: an assignment would lose a key that is called `__proto__`.
function resolveConfig (manifest: Manifest, settings: Settings, reasons: string[]): Record<string, unknown> {
  const values: Array<[string, unknown]> = []
  for (const key of Object.keys(manifest.config ?? {}).sort()) {
    if (Object.hasOwn(settings, key)) {
      const why = checkSetting(manifest, key, settings[key])
      if (why === undefined) values.push([key, settings[key]])
      else reasons.push(`the setting of config ${quoted(key)} of ${manifest.module} does not fit: ${why}`)
      continue
    }
    const entry = own(manifest.config, key)
    if (entry && Object.hasOwn(entry, 'default')) values.push([key, entry.default])
    else reasons.push(`config ${quoted(key)} of ${manifest.module} has neither a default nor a setting`)
  }
  return Object.fromEntries(values)
}

function resolveBound (manifest: Manifest, binding: Binding, offersOf: ComposeInput['offersOf'], reasons: string[]): Record<string, unknown> {
  const values: Array<[string, unknown]> = []
  for (const key of Object.keys(manifest.bound ?? {}).sort()) {
    const what = `bound ${quoted(key)} of ${manifest.module}`
    const to = own(binding, key)
    // The schema's rule for "any member" passes over a key that holds U+2028 or U+2029: what stands there may be anything.
    if (typeof to?.module !== 'string' || typeof to.offer !== 'string') {
      reasons.push(`${what} is bound to nothing: name a module and its offer in binding.${manifest.module}`)
      continue
    }
    const offers = offersOf(to.module)
    if (!offers) reasons.push(`${what} is bound to ${quoted(to.offer)} of ${to.module}, but no module ${to.module} is registered`)
    else if (!Object.hasOwn(offers, to.offer)) reasons.push(`${what} is bound to ${quoted(to.offer)} of ${to.module}, but ${to.module} offers no such thing`)
    else values.push([key, offers[to.offer]])
  }
  return Object.fromEntries(values)
}

type Held = Pick<Composition, 'node' | 'credential'>

/**
 * A module's part in the user list: its manifest, which passed `checkManifest`, and its compositions; or, where its
 * registration is broken, the row that stood before.
 */
export type BusRow =
  | { module: string, manifest: Manifest, compositions: readonly Held[] }
  | { module: string, kept: BusUsers, compositions: readonly Held[] }

/** The `users` of the broker module's composition, by module and node. A module without users is left out. */
export function busUsers (rows: readonly BusRow[]): BusUsers[] {
  return rows.map(busRow).filter(({ users }) => users.length > 0).sort((a, b) => order(a.module, b.module))
}

function busRow (row: BusRow): BusUsers {
  const present = row.compositions.map(({ node, credential }) => ({ node, user: credential.user }))
  if ('kept' in row) {
    // What was taken away stops working even so; what is new waits until its rights can be read.
    const users = row.kept.users.filter(({ node, user }) => present.some((one) => one.node === node && one.user === user))
    return { module: row.module, publish: once(row.kept.publish), subscribe: once(row.kept.subscribe), users: byNode(users) }
  }
  const { publish, subscribe } = row.manifest.permissions ?? {}
  return { module: row.module, publish: once(publish), subscribe: once(subscribe), users: byNode(present) }
}

const once = (subjects: readonly string[] = []): string[] => [...new Set(subjects)].sort()
// By code unit, as `canonical` sorts; never by a locale.
const order = (a: string, b: string): number => a < b ? -1 : a > b ? 1 : 0
const byNode = (users: BusUsers['users']): BusUsers['users'] => users.sort((a, b) => order(a.node, b.node))
