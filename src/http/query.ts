/** Query parameters and names in paths, each wrong one told in a sentence. */
import { Type } from '@sinclair/typebox'
import { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { isName, namePattern, whyNoKey } from '../core/names.js'
import { places, type Place } from '../core/state/place.js'
import { OneOf } from '../schemas/common.js'

type Query = Record<string, unknown>

const invalid = (detail: string): MeshError => new MeshError('invalid', detail)

/** One parameter's text; undefined where it is not there. */
function textOf (query: Query, name: string): string | undefined {
  const value = query[name]
  if (value === undefined || typeof value === 'string') return value
  throw invalid(`the query parameter ${name} stands more than once: give it once`)
}

/** A whole number from 1 to `most`. */
export function numberOf (query: Query, name: string, most: number): number | undefined {
  const text = textOf(query, name)
  if (text === undefined) return undefined
  if (!/^[1-9]\d{0,15}$/.test(text) || Number(text) > most) throw invalid(`the query parameter ${name} must be a whole number from 1 to ${most}`)
  return Number(text)
}

/** The name of a module or a node. */
export function nameOf (query: Query, name: string): string | undefined {
  const text = textOf(query, name)
  if (text !== undefined && !isName(text)) throw invalid(`the query parameter ${name} must be a name: lower-case letters, digits and dashes, at most 63`)
  return text
}

/** Where a page begins, and how much is on it. */
export const pagingOf = (query: Query): { after?: string, limit: number } =>
  ({ after: nameOf(query, 'after'), limit: numberOf(query, 'limit', limits.pageMost) ?? limits.pageDefault })

/** One or several of the words for where something stands: separated by commas, or the parameter given several times. */
export function placesOf (query: Query): Place[] | undefined {
  const { where } = query
  if (where === undefined) return undefined
  const words = [where].flat().flatMap((one) => String(one).split(','))
  if (words.some((word) => !(places as readonly string[]).includes(word))) {
    throw invalid(`the query parameter where must be one or several of ${places.join(', ')}, separated by commas`)
  }
  return words as Place[]
}

/** The same in the description of a route. They are checked here, each with a sentence of its own. */
export const describedPaging = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: limits.pageMost, default: limits.pageDefault, description: 'how many at most' })),
  after: Type.Optional(Type.String({ pattern: namePattern, description: 'the last name of the page before' }))
}
export const describedPlaces = {
  where: Type.Optional(Type.Array(OneOf(places), { description: 'one or several of the words; also separated by commas' }))
}

/** The name in a path. */
export function named (params: unknown, what: 'module' | 'node'): string {
  const { name } = params as { name: string }
  if (!isName(name)) throw invalid(`the name is none of a ${what}: lower-case letters, digits and dashes, at most 63`)
  return name
}

/** The key in a path. */
export function keyed (params: unknown): string {
  const { key } = params as { key: string }
  const why = whyNoKey(key)
  if (why !== undefined) throw invalid(`the key ${why}`)
  return key
}

export const describedName = Type.Object({ name: Type.String({ pattern: namePattern }) })
