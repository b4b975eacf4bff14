import { Type, type Static } from '@sinclair/typebox'
import { Commit, Fingerprint, Name, RevisionText } from './common.js'
import { ManifestSchema } from './manifest.js'

/** `trunk` bucket, key M: the fingerprint a module should be at. The form of `fp` is judged by the take-in. */
export const TrunkSchema = Type.Object({ fp: Type.String({ minLength: 1 }), commit: Commit() })

/** `builds` bucket, key `done.M.FP`. */
export const DoneSchema = Type.Object({ fp: Fingerprint(), commit: Commit(), manifest: ManifestSchema })

/** `inventory` bucket, key `module.M`, of a module that is held but was never taken in. */
export const HeldSchema = Type.Object({ module: Name() })
/** The same, registered at a fingerprint. */
export const RegisteredSchema = Type.Object({
  module: Name(), fp: Fingerprint(), commit: Commit(), trunk: RevisionText(), manifest: ManifestSchema
})
export type Registered = Static<typeof RegisteredSchema>

/** `inventory` bucket, key `assignment.M`. */
export const AssignmentSchema = Type.Object({ nodes: Type.Array(Name()) })

/** `inventory` bucket, key `seat.broker`. */
export const SeatSchema = Type.Object({ module: Name(), node: Name(), servers: Type.Optional(Type.Array(Name())) })
export type Seat = Static<typeof SeatSchema>

/** `inventory` bucket, key `node.N`: its public curve key. */
export const NodeSchema = Type.Object({ node: Name(), curve: Type.String({ pattern: '^X[A-Z2-7]{55}$' }) })
export type NodeDocument = Static<typeof NodeSchema>

/** `inventory` bucket, key `binding.M`: which offer each bound key is bound to. */
export const BindingSchema = Type.Record(Type.String(), Type.Object({ module: Name(), offer: Type.String() }))
export type Binding = Static<typeof BindingSchema>

/** `settings` bucket, key M. */
export const SettingsSchema = Type.Record(Type.String(), Type.Unknown())
export type Settings = Static<typeof SettingsSchema>
