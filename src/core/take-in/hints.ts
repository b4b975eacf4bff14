/** Names that a document probably holds, so that what they name is read in the same round. Whoever uses the document judges it. */
import { isFingerprint, isName } from '../names.js'
import type { Entry } from '../ports.js'

export interface Hints {
  /** The fingerprint that has to be registered; undefined where it is. */
  fp: string | undefined
  /** Nodes that hold a composition. */
  nodes: string[]
  /** What is registered has values that other modules offer. */
  isBound: boolean
}

// Nothing that is no name comes out of here: subjects are made of it.

export function hintsOf (trunk: Entry | undefined, held: Entry | undefined, compositions: Iterable<Entry>): Hints {
  const { fp } = parsed(trunk)
  const { fp: registered, manifest } = parsed(held) as { fp?: unknown, manifest?: { bound?: unknown } }
  const holding = [...compositions].filter(({ deleted }) => !deleted).map(({ key }) => key.slice(0, key.indexOf('.')))
  return {
    fp: isFingerprint(fp) && fp !== registered ? fp : undefined,
    nodes: holding.filter(isName),
    isBound: manifest?.bound !== undefined
  }
}

export function seatIn (entry: Entry | undefined): { node: string, module: string } | undefined {
  const { node, module } = parsed(entry)
  return isName(node) && isName(module) ? { node, module } : undefined
}

function parsed (entry: Entry | undefined): Record<string, unknown> {
  try {
    const value: unknown = entry && !entry.deleted ? JSON.parse(entry.text) : undefined
    return typeof value === 'object' && value !== null ? value as Record<string, unknown> : {}
  } catch { return {} }
}
