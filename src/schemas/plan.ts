import { Type, type Static } from '@sinclair/typebox'
import { outcomes, stepNames } from '../core/take-in/take.js'
import { OneOf } from './common.js'
import { CompositionDiffSchema } from './diff.js'

const Nullable = () => Type.Union([Type.String(), Type.Null()])

/** What a take-in would do now (DESIGN section 6): nothing is written for it. */
export const PlanSchema = Type.Object({
  module: Type.String(),
  outcome: OneOf([...outcomes, 'step-failed'], { description: 'how it would end' }),
  fp: Nullable(),
  commit: Nullable(),
  registered: Type.Boolean({ description: 'it would be registered' }),
  composed: Type.Array(Type.String(), { description: "nodes whose compositions would be written, the bus holder's included" }),
  grant: Type.Boolean({ description: 'the grant would be written' }),
  said: Type.String({ description: 'what would be done, in a line' }),
  steps: Type.Array(Type.Object({ step: OneOf(stepNames), error: Type.Optional(Type.String()) })),
  compositions: Type.Array(Type.Composite([
    Type.Object({ node: Type.String(), module: Type.String() }), CompositionDiffSchema
  ]), { description: 'each composition that would be written or removed, and how it would differ' }),
  grants: Type.Object({
    written: Type.Array(Type.String(), { description: 'fingerprints' }),
    deleted: Type.Array(Type.String(), { description: 'fingerprints' })
  })
}, { $id: 'Plan', title: 'Plan' })
export type Plan = Static<typeof PlanSchema>
