import { Type, type Static } from '@sinclair/typebox'
import { readableKinds } from '../core/names.js'

/** The payload of `mesh.provision.N.M.get` (DESIGN section 4). What a key may be, no schema says: see `core/names.ts`. */
export const AskSchema = Type.Object({
  kind: Type.Union([...readableKinds.map((kind) => Type.Literal(kind)), Type.Literal('secret')]),
  key: Type.String()
})
export type Ask = Static<typeof AskSchema>
