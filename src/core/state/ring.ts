/** The ring of bindings that a module closed, as its take-in finds it. */
import { closedRing, type Bound } from '../compose/cycle.js'
import { own } from '../compose/manifest.js'
import { isName } from '../names.js'
import { readBinding, readHeld } from './documents.js'
import type { Picture } from './picture.js'

const nothing: Bound = { revision: 0, to: [] }

/** A chain of names; undefined where the module closed none. */
export const ringOf = (picture: Picture, module: string): string[] | undefined => closedRing(module, (name) => boundTo(picture, name))

/** Only keys that the registered manifest declares are bound. What does not fit binds nothing here: it fails its own take-in. */
function boundTo (picture: Picture, module: string): Bound {
  const manifest = readHeld(picture.get('inventory', `module.${module}`)).document?.registered?.manifest
  const keys = Object.keys(manifest?.bound ?? {})
  const entry = picture.get('inventory', `binding.${module}`)
  if (keys.length === 0 || !entry) return nothing
  const { document } = readBinding(entry)
  return { revision: entry.revision, to: [...new Set(keys.map((key) => own(document, key)?.module).filter((name) => isName(name)))] }
}
