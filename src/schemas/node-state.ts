import { Type, type Static } from '@sinclair/typebox'
import { places, type Place } from '../core/state/place.js'
import { ModuleDetailSchema } from './module-state.js'

const Known = {
  node: Type.String(),
  curve: Type.Union([Type.String(), Type.Null()], { description: 'its public curve key, which credentials are sealed to; null: no module can be composed for it' }),
  problem: Type.Optional(Type.String({ description: 'why its document does not fit' })),
  broker: Type.Boolean({ description: 'the broker has its seat here' })
}
const Page = {
  total: Type.Integer({ description: 'how many there are, on all pages' }),
  next: Type.Optional(Type.String({ description: '`after` of the next page; left out on the last' }))
}

/** How many modules of a node stand where. */
const CountsSchema = Type.Unsafe<Partial<Record<Place, number>>>(Type.Object(
  Object.fromEntries(places.map((place) => [place, Type.Optional(Type.Integer())]))))

/** A node in a list. */
export const NodeSummarySchema = Type.Object({ ...Known, modules: Type.Integer(), where: CountsSchema })
export type NodeSummary = Static<typeof NodeSummarySchema>

export const NodeListSchema = Type.Object({ nodes: Type.Array(NodeSummarySchema), ...Page }, { $id: 'NodeList', title: 'NodeList' })
export type NodeList = Static<typeof NodeListSchema>

export const NodeDetailSchema = Type.Object({
  ...Known,
  modules: Type.Array(Type.Composite([
    Type.Object({ module: Type.String(), held: Type.Boolean({ description: 'the catalogue holds it' }) }),
    Type.Omit(ModuleDetailSchema.properties.nodes.items, ['node'])
  ])),
  ...Page
}, { $id: 'Node', title: 'Node' })
export type NodeDetail = Static<typeof NodeDetailSchema>
