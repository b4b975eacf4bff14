import type { Static, TSchema } from '@sinclair/typebox'
import { LRUCache } from 'lru-cache'
import { fitting, parseJson } from '../documents.js'
import { limits } from '../limits.js'

interface Judged { text: string, document: unknown }

const cache = (): LRUCache<string, Judged> => new LRUCache({
  max: limits.documentsJudged, maxSize: limits.documentsJudgedCharacters, sizeCalculation: ({ text }: Judged) => text.length + 1
})

/** One cache a schema: the document of a text, by the name of its key. */
const caches = new Map<TSchema, LRUCache<string, Judged>>()

/**
 * The document of a text, checked; throws BadDocument. The bus's node is composed from every module's documents, over and over:
 * a text that was judged before is only compared. What comes out is shared, so nobody changes it.
 */
export function judged<S extends TSchema> (name: string, text: string, schema: S): Static<S> {
  const known = caches.get(schema) ?? cache()
  caches.set(schema, known)
  const before = known.get(name)
  if (before?.text === text) return before.document as Static<S>
  const document = fitting(name, schema, parseJson(name, text))
  known.set(name, { text, document })
  return document
}
