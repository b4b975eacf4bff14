import { Type, type Static } from '@sinclair/typebox'
import { limits } from '../core/limits.js'
import { Name } from './common.js'

const Subjects = Type.Array(Type.String(), { maxItems: limits.subjectsInList })

/** What a module declares (DESIGN section 5). Keys and subjects have rules that no schema says: see `core/compose/manifest.ts`. */
export const ManifestSchema = Type.Object({
  module: Name(),
  config: Type.Optional(Type.Record(Type.String(), Type.Object({
    default: Type.Optional(Type.Unknown()),
    schema: Type.Optional(Type.Union([Type.Object({}), Type.Boolean()]))
  }))),
  bound: Type.Optional(Type.Record(Type.String(), Type.Object({}))),
  secrets: Type.Optional(Type.Array(Type.String(), { uniqueItems: true })),
  offers: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  permissions: Type.Optional(Type.Object({
    publish: Type.Optional(Subjects),
    subscribe: Type.Optional(Subjects)
  }))
})
export type Manifest = Static<typeof ManifestSchema>
