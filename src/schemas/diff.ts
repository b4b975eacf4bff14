import { Type, type Static } from '@sinclair/typebox'
import { OneOf } from './common.js'

/** One difference between two compositions; `path` is a JSON pointer (RFC 6901) into the composition, and into `users` by module and node. */
export const DifferenceSchema = Type.Object({
  path: Type.String(),
  change: OneOf(['added', 'removed', 'changed']),
  was: Type.Optional(Type.Unknown()),
  is: Type.Optional(Type.Unknown())
})
export type Difference = Static<typeof DifferenceSchema>

/** What would change when one composition takes the place of another. */
export const CompositionDiffSchema = Type.Object({
  credential: OneOf(['new', 'kept', 'removed', 'none']),
  changes: Type.Array(DifferenceSchema)
})
export type CompositionDiff = Static<typeof CompositionDiffSchema>
