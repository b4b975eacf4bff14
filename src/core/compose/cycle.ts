/** Bindings that go round: pure, over what was read of them (DESIGN section 3). */

/** What a module is bound to, and the revision of its `binding.M`: 0 where it was never written. */
export interface Bound { revision: number, to: readonly string[] }

/**
 * The chain `[M, …, M]` where module M closed a ring of bindings, else undefined. Of the modules of a ring that is the one whose
 * binding was written last: it alone is at fault, and the others are composed as before. So M's ring goes through modules
 * whose bindings are older than M's. Of several rings the shortest is told, and among those the first by name.
 */
export function closedRing (module: string, boundOf: (module: string) => Bound): string[] | undefined {
  const { revision } = boundOf(module)
  const from = new Map<string, string>()
  let edge = [module]
  while (edge.length > 0) {
    const next: string[] = []
    for (const at of edge) {
      for (const to of [...boundOf(at).to].sort()) {
        if (to === module) return chainTo(at, from, module)
        if (from.has(to) || boundOf(to).revision > revision) continue
        from.set(to, at)
        next.push(to)
      }
    }
    edge = next
  }
  return undefined
}

function chainTo (last: string, from: ReadonlyMap<string, string>, module: string): string[] {
  const chain = [module]
  for (let at: string | undefined = last; at !== undefined && at !== module; at = from.get(at)) chain.unshift(at)
  return [module, ...chain]
}
