import { Type } from '@sinclair/typebox'
import { RevisionText } from './common.js'

/** The payload of `mesh.broker.S.applied`: the composition's revision whose user list should count (DESIGN section 4). */
export const AppliedSchema = Type.Object({ revision: RevisionText() })
