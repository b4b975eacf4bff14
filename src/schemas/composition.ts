import { Type, type Static } from '@sinclair/typebox'
import { Commit, Fingerprint, Name, RevisionText } from './common.js'

/** A bus user of a module on a node; its seed is sealed to the node's curve key (DESIGN section 5). */
export const CredentialSchema = Type.Object({
  user: Type.String({ pattern: '^U[A-Z2-7]{55}$' }),
  sealed: Type.String(),
  by: Type.String({ pattern: '^X[A-Z2-7]{55}$' }),
  to: Type.String({ pattern: '^X[A-Z2-7]{55}$' })
})
export type Credential = Static<typeof CredentialSchema>

/** One module's rights on the bus and its users, in the broker module's composition. */
export const BusUsersSchema = Type.Object({
  module: Name(),
  publish: Type.Array(Type.String()),
  subscribe: Type.Array(Type.String()),
  users: Type.Array(Type.Object({ node: Name(), user: Type.String() }))
})
export type BusUsers = Static<typeof BusUsersSchema>

/** `compositions` bucket, key `N.M`: what a node is to run of a module, all values resolved. */
export const CompositionSchema = Type.Object({
  node: Name(),
  module: Name(),
  fp: Fingerprint(),
  commit: Commit(),
  config: Type.Record(Type.String(), Type.Unknown()),
  bound: Type.Record(Type.String(), Type.Unknown()),
  secrets: Type.Array(Type.String()),
  credential: CredentialSchema,
  users: Type.Optional(Type.Array(BusUsersSchema))
})
export type Composition = Static<typeof CompositionSchema>

/** `grants` bucket, key `M.FP`: the composition revisions that carried the fingerprint. */
export const GrantSchema = Type.Object({
  module: Name(), fp: Fingerprint(), commit: Commit(), nodes: Type.Record(Type.String(), RevisionText())
})
export type Grant = Static<typeof GrantSchema>
