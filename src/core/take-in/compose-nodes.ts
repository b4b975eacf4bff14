/** The step that writes what nodes are to run: the module's own, those it left, and modules bound to what it offers. */
import { composeModule } from '../compose/compose.js'
import { checkManifest, own } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { BadDocument, messageOf } from '../errors.js'
import { isName } from '../names.js'
import type { MakeCredential } from '../ports.js'
import type { Composition } from '../../schemas/composition.js'
import type { NodeDocument, Registered } from '../../schemas/inventory.js'
import { each } from './each.js'
import type { Inventory, Standing } from './inventory.js'
import { PartlyComposed, type Composed, type NodesOf } from './take.js'

/** Where a module runs and where it still stands (DESIGN section 3.5). */
export async function readNodes (inventory: Inventory, module: string): Promise<NodesOf> {
  const [{ document, deleted }, held, standing] = await Promise.all([
    inventory.assignment(module), inventory.module(module), inventory.store.readAll('compositions', `*.${module}`)
  ])
  const holding = [...standing.values()].filter((entry) => !entry.deleted).map(({ key }) => key.slice(0, key.indexOf('.'))).sort()
  const removed = held.deleted
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
  settings: Record<string, unknown>
  binding: Record<string, { module: string, offer: string }>
  offers: Map<string, Record<string, unknown>>
}

/** Reads all but the node's own document. Undefined where the module is not registered. */
export async function readInputs (inventory: Inventory, module: string): Promise<Inputs | undefined> {
  const [{ document: held }, settings, binding] = await Promise.all([
    inventory.module(module), inventory.settings(module), inventory.binding(module)
  ])
  const registered = held?.registered
  if (!registered) return undefined
  // A registration is written by take-ins, which checked it; one that was written by hand is checked like any other document.
  checkManifest(module, registered.manifest)
  const offers = new Map<string, Record<string, unknown>>()
  const boundKeys = Object.keys(registered.manifest.bound ?? {})
  const offering = new Set(boundKeys.map((key) => own(binding.document, key)?.module).filter((name) => isName(name)))
  await each([...offering], async (name) => {
    const { document } = await inventory.module(name)
    if (document?.registered) offers.set(name, document.registered.manifest.offers ?? {})
  })
  return { registered, settings: settings.document ?? {}, binding: binding.document ?? {}, offers }
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

/** Reads what stands; a document that does not fit is no reason to keep it: it is written anew over its revision. */
export async function standingComposition (inventory: Inventory, node: string, module: string): Promise<Standing<Composition>> {
  try {
    return await inventory.composition(node, module)
  } catch (error) {
    if (!(error instanceof BadDocument)) throw error
    const entry = await inventory.store.read('compositions', `${node}.${module}`)
    return { revision: entry?.revision ?? 0, deleted: entry?.deleted ?? false, document: undefined }
  }
}

/** A node's document, judged only where it is needed: a module that is taken off a broken node must not fail by it. */
async function knownNode (inventory: Inventory, node: string): Promise<() => NodeDocument | undefined> {
  const read = await inventory.node(node).then(({ document }) => ({ document }), (error: unknown) => ({ error }))
  return () => {
    if ('error' in read) throw read.error
    return read.document
  }
}

export interface ComposeNodes {
  inventory: Inventory
  makeCredential: MakeCredential
  /** Runs one compare-and-set write until it holds. */
  again: <T>(work: () => Promise<T>) => Promise<T>
}

/** DESIGN section 3.6. `holder` is the broker module's composition, which is another step's and always the last one. */
export async function composeNodes (
  { inventory, makeCredential, again }: ComposeNodes, module: string, nodes: NodesOf, holder: { node: string, module: string } | undefined
): Promise<Composed> {
  const { store } = inventory
  const isHolder = (node: string, of: string): boolean => holder?.node === node && holder.module === of
  const written: string[] = []
  const problems: string[] = []
  let at: Composed['at']

  /** One node's composition of one module; false where nothing had to be written. */
  const write = async (node: string, of: string, onlyStanding: boolean): Promise<boolean> => again(async () => {
    const target = await standingComposition(inventory, node, of)
    if (onlyStanding && !target.document) return false
    const [inputs, { document: assignment }, known] = await Promise.all([
      readInputs(inventory, of), inventory.assignment(of), knownNode(inventory, node)
    ])
    if (!inputs || !assignment?.nodes.includes(node)) return false // taken off meanwhile: that write wakes its own take-in
    const next = composition(node, known(), inputs, target.document, makeCredential)
    if (of === module) at = { fp: next.fp, commit: next.commit }
    if (same(target.document, next)) return false
    await store.write('compositions', `${node}.${of}`, canonical(next), target.revision)
    return true
  })

  const clear = async (node: string): Promise<boolean> => again(async () => {
    const target = await standingComposition(inventory, node, module)
    const now = await readNodes(inventory, module)
    // Only an assignment that stands without the node, or a delete marker, removes anything (DESIGN section 5).
    if (target.revision === 0 || target.deleted || now.assignment === 'absent' || now.assigned.includes(node)) return false
    await store.purge('compositions', `${node}.${module}`, target.revision)
    return true
  })

  const attempt = async (node: string, work: Promise<boolean>): Promise<void> => {
    try {
      if (await work && !written.includes(node)) written.push(node)
    } catch (error) {
      problems.push(messageOf(error))
    }
  }
  // A node that fails does not keep the others from what is theirs.
  await each(nodes.assigned.filter((node) => !isHolder(node, module)), (node) => attempt(node, write(node, module, false)))
  if (nodes.assignment !== 'absent') await each(nodes.left, (node) => attempt(node, clear(node)))
  if (problems.length > 0) throw new PartlyComposed(problems.sort().join('; '), written.sort())

  await each(await boundTo(inventory, module), async ({ node, of }) => {
    if (isHolder(node, of)) return
    try {
      if (await write(node, of, true) && !written.includes(node)) written.push(node)
    } catch (error) {
      // One that cannot be resolved keeps what it has: that fails its own take-in, not this one.
      if (!(error instanceof BadDocument) && (error as Error).name !== 'Unresolvable') throw error
    }
  })
  at ??= await registrationOf(inventory, module)
  return { at, written: written.sort() }
}

async function registrationOf (inventory: Inventory, module: string): Promise<Composed['at']> {
  const registered = (await inventory.module(module)).document?.registered
  return registered && { fp: registered.fp, commit: registered.commit }
}

/** The compositions of other modules that are bound to what this one offers. A binding that does not fit binds nothing here. */
async function boundTo (inventory: Inventory, module: string): Promise<Array<{ node: string, of: string }>> {
  const found: Array<{ node: string, of: string }> = []
  const bindings = await inventory.store.readAll('inventory', 'binding.*')
  await each([...bindings.values()], async ({ key, deleted, text }) => {
    const of = key.slice('binding.'.length)
    // A quick look first: most bindings name other modules.
    if (deleted || of === module || !text.includes(`"${module}"`)) return
    try {
      const { document } = await inventory.binding(of)
      if (!Object.values(document ?? {}).some((to) => to?.module === module)) return
      const { document: assignment } = await inventory.assignment(of)
      for (const node of assignment?.nodes ?? []) found.push({ node, of })
    } catch (error) {
      if (!(error instanceof BadDocument)) throw error
    }
  })
  return found
}
