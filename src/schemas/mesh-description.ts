import { Type, type Static } from '@sinclair/typebox'
import { Commit, Fingerprint, Name } from './common.js'
import { ManifestSchema } from './manifest.js'
import { BindingSchema, SettingsSchema } from './inventory.js'

const strict = { additionalProperties: false }
const named = <S extends Parameters<typeof Type.Record>[1]>(of: S) => Type.Record(Name(), of, strict)

/** A build as its builder would say it is done. Without `fp`, the fingerprint is made of the manifest. */
export const BuildSchema = Type.Object({
  fp: Type.Optional(Fingerprint()),
  commit: Commit(),
  // The module's name stands above it already.
  manifest: Type.Composite([Type.Omit(ManifestSchema, ['module']), Type.Object({ module: Type.Optional(Name()) })], strict)
}, strict)

export const DescribedModuleSchema = Type.Object({
  nodes: Type.Optional(Type.Array(Name(), { uniqueItems: true })),
  build: Type.Optional(BuildSchema),
  trunk: Type.Optional(Type.Object({ fp: Type.String({ minLength: 1 }), commit: Commit() }, strict)),
  bindings: Type.Optional(BindingSchema),
  settings: Type.Optional(SettingsSchema)
}, strict)
export type DescribedModule = Static<typeof DescribedModuleSchema>

/** A mesh in YAML, as `apply` writes it to the buckets: what builder, indexer and operators say of it. */
export const MeshDescriptionSchema = Type.Object({
  nodes: Type.Optional(named(Type.Object({ curve: Type.Optional(Type.String({ pattern: '^X[A-Z2-7]{55}$' })) }, strict))),
  seat: Type.Optional(Type.Object({ module: Name(), node: Name(), servers: Type.Optional(Type.Array(Name())) }, strict)),
  modules: Type.Optional(named(DescribedModuleSchema))
}, strict)
export type MeshDescription = Static<typeof MeshDescriptionSchema>
