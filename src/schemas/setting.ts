import { Type, type Static } from '@sinclair/typebox'
import { outcomes } from '../core/take-in/take.js'
import { OneOf } from './common.js'

/** What became of a setting (DESIGN section 6). */
export const SettingAnswerSchema = Type.Object({
  module: Type.String(),
  key: Type.String(),
  set: Type.Boolean({ description: 'a setting stands; else the default counts' }),
  value: Type.Optional(Type.Unknown({ description: 'the setting' })),
  etag: Type.Optional(Type.String({ description: 'of the setting, for If-Match' })),
  written: Type.Boolean({ description: 'it was written now; false: it stood like that already' }),
  takeIn: Type.Object({
    outcome: OneOf([...outcomes, 'removed', 'not-held', 'step-failed']),
    composed: Type.Array(Type.String(), { description: 'nodes whose compositions were written now' }),
    said: Type.String()
  })
}, { $id: 'SettingAnswer', title: 'SettingAnswer' })
export type SettingAnswer = Static<typeof SettingAnswerSchema>
