/** Names that a document probably holds, so that what they name is read in the same round. Whoever uses the document judges it. */
import { isFingerprint, isName } from '../names.js'
import type { Entry } from '../ports.js'

export interface Hints {
  fp: string | undefined
  nodes: string[]
  /** Modules that a binding names. */
  boundTo: string[]
}

// Nothing that is no name comes out of here: subjects are made of it.

export function hintsOf (trunk: Entry | undefined, assignment: Entry | undefined, binding: Entry | undefined): Hints {
  const { fp } = parsed(trunk)
  const { nodes } = parsed(assignment)
  const bound = Object.values(parsed(binding)).map((to) => (to as { module?: unknown } | null)?.module)
  return {
    fp: isFingerprint(fp) ? fp : undefined,
    nodes: Array.isArray(nodes) ? [...new Set(nodes.filter(isName))] : [],
    boundTo: [...new Set(bound.filter(isName))]
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
