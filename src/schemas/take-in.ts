import { Type, type Static } from '@sinclair/typebox'
import { limits } from '../core/limits.js'
import { outcomes, stepNames } from '../core/take-in/take.js'
import { OneOf } from './common.js'

const Nullable = (pattern?: string) => Type.Union([Type.String(pattern ? { pattern } : {}), Type.Null()])

/** One step as it ended. */
export const StepSchema = Type.Object({
  step: OneOf(stepNames),
  ms: Type.Number({ minimum: 0 }),
  error: Type.Optional(Type.String())
})

/** What a take-in did (DESIGN section 6). */
export const TakeInAnswerSchema = Type.Object({
  outcome: OneOf(outcomes, { description: 'how it ended; each way has its own name' }),
  module: Type.String(),
  fp: Nullable(),
  commit: Nullable(),
  registered: Type.Boolean({ description: 'registered by this run' }),
  composed: Type.Array(Type.String(), { description: "nodes whose compositions were written now, the bus holder's included" }),
  grant: Type.Boolean({ description: 'the grant was written now' }),
  said: Type.String({ description: 'what was done, in a line' }),
  steps: Type.Array(StepSchema)
}, { $id: 'TakeInAnswer', title: 'TakeInAnswer' })

/** The optional body of a take-in. Other members are not read. */
export const TakeInBodySchema = Type.Object({
  reason: Type.Optional(Type.String({ maxLength: limits.reasonCharacters, description: 'why, for the record' }))
})

/** `takeins` bucket, key M: the last run worth a record (DESIGN section 5). */
export const RecordSchema = Type.Object({
  outcome: Type.String(),
  at: Type.String({ format: 'date-time' }),
  by: Type.Array(Type.String()),
  from: Type.Optional(Type.String()),
  to: Type.Optional(Type.String()),
  steps: Type.Array(StepSchema)
})
export type TakeInRecord = Static<typeof RecordSchema>
