import { Type, type Static } from '@sinclair/typebox'
import { places } from '../core/state/place.js'
import { OneOf } from './common.js'
import { RecordSchema } from './take-in.js'

const Nullable = <T extends Parameters<typeof Type.Union>[0][number]>(of: T, options = {}) => Type.Union([of, Type.Null()], options)

export const PlaceSchema = () => OneOf(places, { description: 'where it stands, in a word: see docs/state.md' })
const Why = () => Type.String({ description: 'what differs, and what would mend it' })
const AtSchema = Type.Object({ fp: Type.String(), commit: Type.String() })
/** `EPOCH.REVISION`, as grants name it. */
const RevisionSchema = Type.String({ description: 'EPOCH.REVISION of the composition' })

/** What stands on a node. The sealed credential is in no answer; its user's public key is. */
const StandingSchema = Type.Object({ fp: Type.String(), commit: Type.String(), revision: RevisionSchema, user: Type.String({ description: "the public key of the bus's user" }) })

const NodeOfModuleSchema = Type.Object({
  node: Type.String(),
  assigned: Type.Boolean(),
  where: PlaceSchema(),
  composition: Nullable(AtSchema, { description: 'what stands there' })
})

/** A module in a list: what the indexer, the take-in and the nodes say of it, side by side. */
export const ModuleSummarySchema = Type.Object({
  module: Type.String(),
  where: PlaceSchema(),
  why: Why(),
  trunk: Nullable(AtSchema, { description: 'what it should be at' }),
  registered: Nullable(AtSchema),
  nodes: Type.Array(NodeOfModuleSchema),
  grants: Type.Array(Type.Object({ fp: Type.String(), commit: Type.String(), nodes: Type.Array(Type.String()) })),
  last: Nullable(Type.Object({ outcome: Type.String(), at: Type.String() }), { description: 'the last take-in worth a record' }),
  problems: Type.Array(Type.Object({ key: Type.String(), why: Type.String() }), { description: 'documents that do not fit, by bucket and key' })
})
export type ModuleSummary = Static<typeof ModuleSummarySchema>

const Page = {
  total: Type.Integer({ description: 'how many there are, on all pages' }),
  next: Type.Optional(Type.String({ description: '`after` of the next page; left out on the last' }))
}

export const ModuleListSchema = Type.Object({ modules: Type.Array(ModuleSummarySchema), ...Page }, { $id: 'ModuleList', title: 'ModuleList' })
export type ModuleList = Static<typeof ModuleListSchema>

export const ModuleDetailSchema = Type.Composite([
  Type.Omit(ModuleSummarySchema, ['nodes', 'grants', 'last']),
  Type.Object({
    assignment: OneOf(['stands', 'deleted', 'absent'], { description: '`absent`: nobody wrote one, and nobody deleted one' }),
    nodes: Type.Array(Type.Object({
      node: Type.String(), assigned: Type.Boolean(), where: PlaceSchema(), why: Why(), composition: Nullable(StandingSchema)
    })),
    config: Type.Array(Type.Object({
      key: Type.String(),
      set: Type.Boolean({ description: 'an operator has set it' }),
      setting: Type.Optional(Type.Unknown()),
      default: Type.Optional(Type.Unknown()),
      etag: Type.Optional(Type.String({ description: 'of the setting, for If-Match' }))
    })),
    bound: Type.Array(Type.Object({
      key: Type.String(),
      to: Nullable(Type.Object({ module: Type.String(), offer: Type.String() })),
      offered: Type.Boolean({ description: 'the module is registered and offers that' })
    })),
    secrets: Type.Array(Type.String()),
    offers: Type.Array(Type.Object({ name: Type.String(), to: Type.Array(Type.String(), { description: 'the modules bound to it' }) })),
    grants: Type.Array(Type.Object({ fp: Type.String(), commit: Type.String(), nodes: Type.Record(Type.String(), RevisionSchema) })),
    last: Nullable(RecordSchema)
  })
], { $id: 'Module', title: 'Module' })
export type ModuleDetail = Static<typeof ModuleDetailSchema>

export const RecordListSchema = Type.Object({
  module: Type.String(),
  takeIns: Type.Array(Type.Composite([RecordSchema, Type.Object({ revision: Type.Integer() })])),
  next: Type.Optional(Type.Integer({ description: '`before` of the next page; left out on the last' }))
}, { $id: 'RecordList', title: 'RecordList' })
export type RecordList = Static<typeof RecordListSchema>
