/** What dashboards are told of the mesh (DESIGN section 6), from a picture of the buckets that is a moment old at most. */
import { setImmediate as turn } from 'node:timers/promises'
import type { ModuleDetail, ModuleList, RecordList } from '../../schemas/module-state.js'
import type { NodeDetail, NodeList, NodeSummary } from '../../schemas/node-state.js'
import { limits } from '../limits.js'
import type { Overview } from './overview.js'
import { isHeld, readRecord } from './documents.js'
import { detailOf, onNode, summaryOf } from './module-answer.js'
import { ModuleStates, namesIn, type ModuleState } from './module-state.js'
import { knownOf, nodesIn } from './node-answer.js'
import { pageOf, type Paging } from './page.js'
import type { Picture } from './picture.js'
import type { Place } from './place.js'

export interface ModuleFilter extends Paging { where?: readonly Place[], node?: string }

interface Seen { picture: Picture, version: number, states: ReadonlyMap<string, ModuleState> }

/** Each call rejects with `unavailable` while the buckets are not known. */
export class MeshState {
  readonly #states = new ModuleStates()
  #seen: Seen | undefined

  constructor (private readonly overview: Overview) {}

  /** The modules of the catalogue, by name. */
  async modules ({ where, node, ...paging }: ModuleFilter): Promise<ModuleList> {
    const { states } = await this.#look()
    const isAsked = (one: ModuleState): boolean =>
      (!where || where.includes(one.where)) && (node === undefined || one.nodes.some((of) => of.node === node))
    const found = [...states.values()].filter((one) => one.held && isAsked(one))
    const { items, ...page } = pageOf(found, ({ module }) => module, paging)
    return { modules: items.map(summaryOf), ...page }
  }

  /** One module in detail; undefined where the catalogue does not hold it. */
  async module (name: string): Promise<ModuleDetail | undefined> {
    const { picture, states } = await this.#look()
    const state = states.get(name)
    return state?.held ? detailOf(picture, state) : undefined
  }

  /** Where a module that the catalogue does not hold still stands. */
  async strays (name: string): Promise<string[]> {
    const { states } = await this.#look()
    return states.get(name)?.nodes.map(({ node }) => node) ?? []
  }

  /** The records of a module's take-ins, the newest first, from the leader; undefined where the catalogue does not hold it. */
  async takeIns (module: string, { limit, before = Infinity }: { limit: number, before?: number }): Promise<RecordList | undefined> {
    if (!isHeld(await this.overview.picture(), module)) return undefined
    const entries = (await this.overview.history('takeins', module)).filter(({ revision }) => revision < before).reverse()
    const records = entries.flatMap((entry) => {
      const { document } = readRecord(entry)
      return document ? [{ ...document, revision: entry.revision }] : []
    })
    const takeIns = records.slice(0, limit)
    const last = takeIns.at(-1)
    return { module, takeIns, ...(records.length > limit && last ? { next: last.revision } : {}) }
  }

  /** Every node that is known, named in an assignment, or where something stands. */
  async nodes (paging: Paging): Promise<NodeList> {
    const { picture, states } = await this.#look()
    const counts = new Map<string, NodeSummary['where']>()
    for (const { nodes } of states.values()) {
      for (const { node, where } of nodes) {
        const of = counts.get(node) ?? {}
        of[where] = (of[where] ?? 0) + 1
        counts.set(node, of)
      }
    }
    const { items, ...page } = pageOf(nodesIn(picture, counts.keys()), (node) => node, paging)
    const nodes = items.map((node) => {
      const where = counts.get(node) ?? {}
      return { ...knownOf(picture, node), modules: Object.values(where).reduce((sum, one) => sum + one, 0), where }
    })
    return { nodes, ...page }
  }

  /** One node and the modules on it; undefined where there is no such node. */
  async node (name: string, { where, ...paging }: Omit<ModuleFilter, 'node'>): Promise<NodeDetail | undefined> {
    const { picture, states } = await this.#look()
    const on = [...states.values()].flatMap(({ module, held, nodes }) =>
      nodes.filter(({ node }) => node === name).map((of) => ({ module, held, of })))
    if (on.length === 0 && !nodesIn(picture, []).includes(name)) return undefined
    const { items, ...page } = pageOf(on.filter(({ of }) => !where || where.includes(of.where)), ({ module }) => module, paging)
    const modules = items.map(({ module, held, of }) => {
      const { node: _, ...rest } = onNode(picture, of)
      return { module, held, ...rest }
    })
    return { ...knownOf(picture, name), modules, ...page }
  }

  async #look (): Promise<Seen> {
    const picture = await this.overview.picture()
    if (this.#seen?.picture === picture && this.#seen.version === picture.version) return this.#seen
    // Others have their turn between: four thousand compositions take a while the first time.
    let n = 0
    for (const module of namesIn(picture)) {
      this.#states.warm(picture, module)
      if (++n % limits.stateSlice === 0) await turn()
    }
    // What moved meanwhile is looked at again; the rest is known by now.
    const { version } = picture
    this.#seen = { picture, version, states: this.#states.all(picture) }
    return this.#seen
  }
}
