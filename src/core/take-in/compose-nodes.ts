/** The step that writes what nodes are to run: the module's own, those it left, and modules bound to what it offers. */
import { composeModule } from '../compose/compose.js'
import { checkManifest, own } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { BadDocument, Conflict, messageOf, Transient } from '../errors.js'
import { isName } from '../names.js'
import type { Entry, MakeCredential, Store } from '../ports.js'
import { CompositionSchema, type Composition } from '../../schemas/composition.js'
import type { Binding, NodeDocument, Registered, Settings } from '../../schemas/inventory.js'
import { cycleOf } from './binding-walk.js'
import { each } from './each.js'
import { standing, type Inventory } from './inventory.js'
import { Sight } from './sight.js'
import { PartlyComposed, type Composed, type NodesOf } from './take.js'

/** Where a module runs and where it still stands (DESIGN section 3.5). */
export async function readNodes (sight: Sight): Promise<NodesOf> {
  const { module } = sight
  const inputs = await sight.inputs()
  const { document, deleted } = await inputs.assignment(module)
  const { deleted: removed } = await inputs.module(module)
  const holding = sight.all('compositions').filter((entry) => !entry.deleted && entry.key.endsWith(`.${module}`)).map(({ key }) => key.slice(0, key.indexOf('.'))).sort()
  const assigned = removed ? [] : [...new Set(document?.nodes ?? [])].sort()
  return {
    assignment: document ? 'stands' : deleted || removed ? 'deleted' : 'absent',
    assigned,
    left: holding.filter((node) => !assigned.includes(node))
  }
}

/** What the composing of a module on any node reads; the same for all its nodes. */
export interface Inputs {
  registered: Registered
  settings: Settings
  binding: Binding
  offers: Map<string, Record<string, unknown>>
  /** The chain of bindings that this module closed to a ring, if it did. */
  cycle: readonly string[] | undefined
}

/** Reads all but the node's own document. Undefined where the module is not registered. */
export async function readInputs (inventory: Inventory, module: string): Promise<Inputs | undefined> {
  const registered = (await inventory.module(module)).document?.registered
  if (!registered) return undefined
  // A registration is written by take-ins, which checked it; one that was written by hand is checked like any other document.
  checkManifest(module, registered.manifest)
  // What a manifest does not declare is not read, either.
  const nothing = { document: undefined }
  const { config = {}, bound = {} } = registered.manifest
  const [settings, binding] = await Promise.all([
    Object.keys(config).length > 0 ? inventory.settings(module) : nothing, Object.keys(bound).length > 0 ? inventory.binding(module) : nothing
  ])
  const offers = new Map<string, Record<string, unknown>>()
  const boundKeys = Object.keys(bound)
  const offering = new Set(boundKeys.map((key) => own(binding.document, key)?.module).filter((name) => isName(name)))
  const [cycle] = await Promise.all([
    cycleOf(inventory, module, registered.manifest),
    each([...offering], async (name) => {
      const { document } = await inventory.module(name)
      if (document?.registered) offers.set(name, document.registered.manifest.offers ?? {})
    })
  ])
  return { registered, settings: settings.document ?? {}, binding: binding.document ?? {}, offers, cycle }
}

/** The composition of a module on a node as it should be; throws where it cannot be resolved, or the node is not known. */
export function composition (
  node: string, document: NodeDocument | undefined, inputs: Inputs, standing: Composition | undefined, makeCredential: MakeCredential
): Composition {
  if (!document) throw new BadDocument(`there is no inventory node.${node}, whose curve key the credential of ${inputs.registered.module} is sealed to`)
  if (document.node !== node) throw new BadDocument(`inventory node.${node} names another node, ${document.node}`)
  return composeModule({ ...inputs, node: document, offersOf: (name) => inputs.offers.get(name), standing, makeCredential })
}

const same = (a: Composition | undefined, b: Composition): boolean => a !== undefined && canonical(a) === canonical(b)

/** The composition that stands; one that does not fit is no reason to keep it: it is written anew over its revision. */
export function standingComposition (key: string, entry: Entry | undefined): Composition | undefined {
  try {
    return standing('compositions', key, entry, CompositionSchema).document
  } catch (error) {
    if (error instanceof BadDocument) return undefined
    throw error
  }
}

/** Writes one node's composition of the module that is seen; undefined where nothing had to be written, else whether its user is another. */
async function write (sight: Sight, node: string, inputs: Inputs, makeCredential: MakeCredential): Promise<{ newUser: boolean } | undefined> {
  const key = `${node}.${sight.module}`
  const stands = standingComposition(key, sight.target('compositions', key))
  const { document } = await (await sight.inputs()).node(node)
  const next = composition(node, document, inputs, stands, makeCredential)
  if (same(stands, next)) return undefined
  await sight.write('compositions', key, canonical(next))
  return { newUser: stands?.credential.user !== next.credential.user }
}

/** Removes what a node holds of a module that left it. Its sealed credential must not linger in the history (DESIGN section 5). */
async function clear (sight: Sight, node: string): Promise<object> {
  return { removed: await sight.purge('compositions', `${node}.${sight.module}`) }
}

/** Whether an error speaks of time and of others, not of a document: the write is worth another try. */
const passes = (error: unknown): boolean => error instanceof Conflict || error instanceof Transient

export interface ComposeNodes {
  store: Store
  makeCredential: MakeCredential
  /** Works on what is seen of the module; after a conflict or a passing fault on what is seen anew. */
  seeing: <T>(work: (sight: Sight) => Promise<T>) => Promise<T>
  /** Runs one compare-and-set write until it holds. */
  again: <T>(work: () => Promise<T>) => Promise<T>
}

type Holder = { node: string, module: string } | undefined

/** DESIGN section 3.6. `holder` is the broker module's composition, which is another step's and always the last one. */
export async function composeNodes (
  { store, makeCredential, seeing, again }: ComposeNodes, module: string, nodes: NodesOf, holder: Holder
): Promise<Composed> {
  const isHolder = (node: string, of: string): boolean => holder?.node === node && holder.module === of
  const written = new Set<string>()
  const problems = new Set<string>()

  /** One pass over the module's nodes. A node that fails does not keep the others from what is theirs. */
  const pass = async (sight: Sight): Promise<Registered | undefined> => {
    problems.clear()
    const later: unknown[] = []
    const attempt = async (node: string, work: () => Promise<object | undefined>): Promise<void> => {
      try {
        if (await work() !== undefined) written.add(node)
      } catch (error) {
        if (passes(error)) later.push(error)
        else problems.add(messageOf(error))
      }
    }
    const now = await readNodes(sight)
    // Read and judged for the first node that needs it, so that a module which runs nowhere does not fail by it.
    let read: Promise<Inputs | undefined> | undefined
    const inputs = async (): Promise<Inputs | undefined> => (read ??= readInputs(await sight.inputs(), module))
    await each(nodes.assigned.filter((node) => !isHolder(node, module) && now.assigned.includes(node)), (node) => attempt(node, async () => {
      const from = await inputs()
      return from && write(sight, node, from, makeCredential)
    }))
    // Only an assignment that stands without the node, or a delete marker, removes anything (DESIGN section 5).
    if (now.assignment !== 'absent') await each(now.left.filter((node) => nodes.left.includes(node)), (node) => attempt(node, () => clear(sight, node)))
    const lingering = sight.all('compositions').filter(({ lingers }) => lingers)
    await each(lingering, ({ key, revision }) => sight.erase('compositions', key, revision - 1))
    if (later.length > 0) throw later[0]
    return (await (await sight.inputs()).module(module)).document?.registered
  }

  let registered: Registered | undefined
  try {
    registered = await seeing(pass)
  } catch (error) {
    throw written.size > 0 ? new PartlyComposed([messageOf(error), ...problems].sort().join('; '), [...written].sort()) : error
  }
  if (problems.size > 0) throw new PartlyComposed([...problems].sort().join('; '), [...written].sort())

  let otherUsers = false
  await each(await boundTo(store, registered), (of) => again(async () => {
    const sight = await Sight.of(store, of)
    const targets: Array<{ bucket: 'compositions', key: string }> = []
    try {
      const from = await readInputs(await sight.inputs(), of)
      const { assigned } = await readNodes(sight)
      if (!from) return
      for (const node of assigned) {
        const key = `${node}.${of}`
        if (isHolder(node, of) || !standingComposition(key, sight.target('compositions', key))) continue
        targets.push({ bucket: 'compositions', key })
        const done = await write(sight, node, from, makeCredential)
        if (done) written.add(node)
        otherUsers ||= done?.newUser ?? false
      }
    } catch (error) {
      // One that cannot be resolved keeps what it has: that fails its own take-in, not this one.
      if (!(error instanceof BadDocument) && (error as Error).name !== 'Unresolvable') throw error
    }
    if (targets.length > 0 && await sight.moved(targets)) throw new Conflict(`what ${of} is composed from was written by another`)
  }))
  return { at: registered && { fp: registered.fp, commit: registered.commit }, written: [...written].sort(), ...(otherUsers ? { otherUsers } : {}) }
}

/**
 * Other modules that are bound to what this one offers. A binding that does not fit binds nothing here. Where nothing is
 * offered none of them could be resolved, so they keep what they have, and nobody has to look for them.
 */
async function boundTo (store: Store, registered: Registered | undefined): Promise<string[]> {
  if (!registered || Object.keys(registered.manifest.offers ?? {}).length === 0) return []
  const { module } = registered
  const bindings = await store.readAll('inventory', 'binding.*')
  return [...bindings.values()].filter(({ key, deleted, text }) => {
    const of = key.slice('binding.'.length)
    // A quick look is enough: whoever composes it reads and judges the binding itself.
    return !deleted && of !== module && isName(of) && text.includes(`"${module}"`)
  }).map(({ key }) => key.slice('binding.'.length))
}
