/** Follows bindings from module to module, to see whether they go round. */
import { closedRing, type Bound } from '../compose/cycle.js'
import { own } from '../compose/manifest.js'
import { BadDocument } from '../errors.js'
import { limits } from '../limits.js'
import { isName } from '../names.js'
import type { Manifest } from '../../schemas/manifest.js'
import { each } from './each.js'
import type { Inventory } from './inventory.js'

/**
 * The ring of bindings that this module closed, as a chain of names; undefined where it closed none. Throws BadDocument where the
 * walk has no end in sight.
 */
export async function cycleOf (inventory: Inventory, module: string, manifest: Manifest): Promise<string[] | undefined> {
  const known = new Map<string, Bound>()
  const first = await boundTo(inventory, module, manifest)
  if (first.to.length === 0) return undefined
  known.set(module, first)
  let edge = first.to.filter((name) => name !== module)
  while (edge.length > 0) {
    if (known.size + edge.length > limits.bindingWalk) {
      throw new BadDocument(`the bindings of ${module} lead to more than ${limits.bindingWalk} modules, one after another: bind it to less`)
    }
    const next = new Set<string>()
    await each(edge, async (name) => {
      const bound = await boundToOf(inventory, name)
      known.set(name, bound)
      // Beyond a younger binding lies a ring that another closed.
      if (bound.revision <= first.revision) for (const to of bound.to) next.add(to)
    })
    edge = [...next].filter((name) => !known.has(name))
  }
  return closedRing(module, (name) => known.get(name) ?? { revision: 0, to: [] })
}

/** Only keys that the registered manifest declares are bound (DESIGN section 5). */
async function boundTo (inventory: Inventory, module: string, manifest: Manifest): Promise<Bound> {
  const keys = Object.keys(manifest.bound ?? {})
  if (keys.length === 0) return { revision: 0, to: [] }
  const { revision, document } = await inventory.binding(module)
  return { revision, to: [...new Set(keys.map((key) => own(document, key)?.module).filter((name) => isName(name)))] }
}

/** The same for another module. One whose documents do not fit is bound to nothing: it fails its own take-in. */
async function boundToOf (inventory: Inventory, module: string): Promise<Bound> {
  try {
    const { document } = await inventory.module(module)
    return document?.registered ? await boundTo(inventory, module, document.registered.manifest) : { revision: 0, to: [] }
  } catch (error) {
    if (error instanceof BadDocument) return { revision: 0, to: [] }
    throw error
  }
}
