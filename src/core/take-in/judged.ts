import type { Static, TSchema } from '@sinclair/typebox'
import { LRUCache } from 'lru-cache'
import { fitting, parseJson } from '../documents.js'
import { limits } from '../limits.js'

/** One cache a schema: the document of a text, by the name of its key. */
const known = new Map<TSchema, LRUCache<string, { text: string, document: unknown }>>()

/**
 * The document of a text, checked; throws BadDocument. The bus's node is composed from every module's documents, over and over:
 * a text that was judged before is only compared. What comes out is shared, so nobody changes it.
 */
export function judged<S extends TSchema> (name: string, text: string, schema: S): Static<S> {
  let of = known.get(schema)
  if (!of) known.set(schema, of = new LRUCache({ max: limits.documentsJudged, maxSize: limits.documentsJudgedCharacters, sizeCalculation: (one) => one.text.length + 1 }))
  const before = of.get(name)
  if (before?.text === text) return before.document as Static<S>
  const document = fitting(name, schema, parseJson(name, text))
  of.set(name, { text, document })
  return document
}
