import { createHash } from 'node:crypto'
import type { Answer } from '../ports.js'

/** What a provisioner said of a value, with the identity by which two of them are the same or a change. */
export type Said =
  | { readonly id: string, readonly etag: string, readonly bytes: Uint8Array }
  | { readonly id: string, readonly refused: string, readonly code: 403 | 404 }

// 132 bits: enough that two values never share an id by chance or by intent.
const digest = (of: Uint8Array | string): string => createHash('sha256').update(of).digest('base64url').slice(0, 22)

/**
 * A value is identified by its bytes, a refusal by its reason (DESIGN section 2). The id of a value is its strong ETag
 * without the quotes; a refusal's can be no value's, since a value's holds no dot.
 */
export function saidOf (answer: Answer): Said {
  if ('refused' in answer) return { id: `refused.${digest(answer.refused)}`, refused: answer.refused, code: answer.code }
  const id = digest(answer.bytes)
  return { id, etag: `"${id}"`, bytes: answer.bytes }
}

/** What an answer says: the same object where it says the same again, so that whoever holds it need not compare. */
export function saidAgain (before: Said | undefined, answer: Answer): Said {
  const said = saidOf(answer)
  // Two refusals with one reason are no change to a watch, but a get answers with the present one's code.
  return before && said.id === before.id && ('code' in said ? said.code : 0) === ('code' in before ? before.code : 0) ? before : said
}

/** The id in an ETag as a client hands it back, with its quotes or without. */
export const idOfEtag = (etag: string): string => /^"(.*)"$/.exec(etag)?.[1] ?? etag
