import { Type, type SchemaOptions } from '@sinclair/typebox'
import { fingerprintPattern, namePattern } from '../core/names.js'

export const Name = (options: SchemaOptions = {}) => Type.String({ pattern: namePattern, ...options })
export const Fingerprint = (options: SchemaOptions = {}) => Type.String({ pattern: fingerprintPattern, ...options })
/** A commit id as the version control system has it; compared by `sameCommit`. */
export const Commit = () => Type.String({ minLength: 1, maxLength: 128, pattern: '^[!-~]+$' })
/** `EPOCH.REVISION` (DESIGN section 4). */
export const RevisionText = () => Type.String({ pattern: '^[0-9]{1,15}\\.[0-9]{1,15}$' })
/** A string that must be one of these; one enum in the document instead of a union of constants. */
export const OneOf = <T extends string>(values: readonly T[], options: SchemaOptions = {}) =>
  Type.Unsafe<T>({ type: 'string', enum: [...values], ...options })
