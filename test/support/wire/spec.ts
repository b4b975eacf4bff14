/**
 * Holds a gateway's answers against openapi.yaml (case H3): what was answered and is not documented is a fault of the one or of
 * the other. Every answer that the clients of `wire/` read passes here, so that a whole test run is held against the document.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { parse } from 'yaml'
import { packageRoot } from '../../../src/package-info.js'
import { parsed, type HttpAnswer } from './bytes.js'

interface Response { description: string, headers?: Record<string, { schema: object }>, content?: Record<string, { schema: object }> }
export interface Operation {
  operationId: string
  tags?: string[]
  security?: object[]
  parameters?: Array<{ in: string, name: string, description?: string }>
  requestBody?: object
  responses: Record<string, Response>
}
export interface Described { paths: Record<string, Record<string, Operation>>, components: object }

/** The document as it is checked in. */
export const described = parse(readFileSync(join(packageRoot, 'openapi.yaml'), 'utf8')) as Described

const ajv = new Ajv2020({ formats: { 'date-time': true }, strict: false, validateSchema: false, allErrors: false })
ajv.addSchema(described, 'openapi.yaml')
const compiled = new Map<string, ValidateFunction>()

/** Why a value does not fit the schema at a place in the document; undefined where it does. */
function misfit (value: unknown, ...place: string[]): string | undefined {
  const pointer = place.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')
  let check = compiled.get(pointer)
  if (!check) compiled.set(pointer, check = ajv.compile({ $ref: `openapi.yaml#/${pointer}` }))
  return check(value) ? undefined : `${check.errors?.[0]?.instancePath ?? ''} ${check.errors?.[0]?.message ?? 'does not fit'}`
}

/** Each operation of the document, with its method in capitals and its path. */
export const operations: ReadonlyArray<{ method: string, path: string, operation: Operation }> = Object.entries(described.paths)
  .flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })))

const paths = Object.keys(described.paths)
  // A path without parameters before one that would take it in.
  .sort((a, b) => Number(a.includes('{')) - Number(b.includes('{')))
  .map((path) => ({ path, matches: new RegExp(`^${path.replace(/[.]/g, '\\$&').replace(/\{[^}]+\}/g, '[^/]*')}$`) }))

/** The documented path that a request target is on. */
export const pathOf = (target: string): string | undefined => paths.find(({ matches }) => matches.test(target.split('?')[0] as string))?.path

/** What any port of a gateway answers where there is nothing, or before it knows what is asked. */
const anywhere: Record<number, string[]> = {
  400: ['invalid'], 404: ['not-found'], 413: ['too-large'], 414: ['uri-too-long'], 415: ['unsupported-media-type']
}
/** What it answers to a method that a path has not. */
const otherMethod: Record<number, string[]> = { 400: ['invalid'], 405: ['method-not-allowed'], 414: ['uri-too-long'] }

/** Headers that a status bears at times: the value's age where it is an old one, nothing of one value on a stream of them. */
const notAlways = (name: string, type: string): boolean => name === 'Age' || (type === 'text/event-stream' && name === 'ETag')

const prefix = 'urn:mesh-gateway:problem:'
const namesIn = ({ description }: Response): string[] => [...description.matchAll(/`([a-z-]+)`:/g)].map(([, name]) => name as string)

function problemFault ({ status, headers, body }: HttpAnswer, names: string[], toHead: boolean): string | undefined {
  if (!headers['content-type']?.startsWith('application/problem+json')) return `the content type is ${headers['content-type']}`
  if (headers['cache-control'] !== 'no-store') return `Cache-Control is ${headers['cache-control']}`
  if (status === 405 && !headers.allow) return 'no Allow'
  if (toHead) return undefined
  const problem = parsed(body)
  const why = misfit(problem, 'components', 'schemas', 'Problem')
  if (why !== undefined) return `the problem${why}`
  if (problem.status !== status) return `the problem says status ${problem.status}`
  return names.includes(problem.type.slice(prefix.length)) ? undefined : `the problem is ${problem.type}, documented: ${names.join(', ') || 'none'}`
}

function headerFault (answer: HttpAnswer, response: Response, type: string, ...place: string[]): string | undefined {
  for (const [name, { schema }] of Object.entries(response.headers ?? {})) {
    const value = answer.headers[name.toLowerCase()]
    if (value === undefined) {
      if (notAlways(name, type)) continue
      return `no ${name}`
    }
    const typed = (schema as { type?: string }).type === 'integer' ? Number(value) : value
    const why = misfit(typed, ...place, 'headers', name, 'schema')
    if (why !== undefined) return `the header ${name}${why}: ${value}`
  }
  return undefined
}

function bodyFault (answer: HttpAnswer, response: Response, type: string, whole: boolean, ...place: string[]): string | undefined {
  const content = Object.keys(response.content ?? {})
  if (content.length === 0) return answer.data.length > 0 ? 'a body where none is documented' : undefined
  if (!content.includes(type)) return `the content type is ${type || 'none'}, documented: ${content.join(', ')}`
  if (!whole) return undefined
  const json = type.endsWith('json')
  const value: unknown = json ? parsed(answer.body) : answer.body
  if (json && value === undefined) return 'the body is no JSON'
  const why = misfit(value, ...place, 'content', type, 'schema')
  return why === undefined ? undefined : `the body${why}`
}

export interface Asked {
  method: string
  target: string
  /** It asked for a websocket: any route may answer that there is none. */
  upgrade?: boolean
  /** Health is on another port: what is documented may be there, and not here. */
  split?: boolean
}

const seen = new Set<string>()

/** Why an answer is none that the document allows, with the place; undefined where it is. `whole`: its body came to its end. */
export function undocumented ({ method, target, upgrade = false, split = false }: Asked, answer: HttpAnswer, whole = true): string | undefined {
  const { status } = answer
  const path = pathOf(target)
  const methods = path === undefined ? undefined : described.paths[path]
  const at = (why: string | undefined): string | undefined =>
    why === undefined ? undefined : `${method} ${path ?? target.slice(0, 100)} answered ${status}: ${why} (see openapi.yaml)`
  const toHead = method === 'HEAD'
  const verb = (toHead ? 'get' : method).toLowerCase()
  // A websocket has no head alone.
  const operation = toHead && methods?.[verb]?.responses[101] ? undefined : methods?.[verb]
  if (operation === undefined || path === undefined) {
    if (method === 'OPTIONS' && status === 204) return undefined
    const names = upgrade && status === 426 ? ['upgrade-required'] : (methods ? otherMethod : anywhere)[status]
    return at(names ? problemFault(answer, names, toHead) : 'no such status where nothing is documented')
  }
  if (split && status === 404 && parsed(answer.body)?.type === `${prefix}not-found`) return undefined
  const response = operation.responses[status]
  if (response === undefined) {
    return at(upgrade && status === 426 ? problemFault(answer, ['upgrade-required'], toHead) : 'the status is not documented')
  }
  if (!toHead) seen.add(`${method} ${path} ${status}`)
  const type = answer.headers['content-type']?.split(';')[0]?.trim() ?? ''
  const place = ['paths', path, verb, 'responses', String(status)]
  if (status >= 400 && type === 'application/problem+json') {
    return at(headerFault(answer, response, type, ...place) ?? problemFault(answer, namesIn(response), toHead || !whole))
  }
  return at(headerFault(answer, response, type, ...place) ?? bodyFault(answer, response, type, whole && !toHead, ...place))
}

/** What is documented and was in no answer of this process so far: `METHOD path status`. */
export const unseen = (): string[] => operations
  .flatMap(({ method, path, operation }) => Object.keys(operation.responses).map((status) => `${method} ${path} ${status}`))
  .filter((one) => !seen.has(one))

const gateways = new Map<number, { split: boolean }>()

/** From now on the answers at this port are a gateway's. `split`: its health is on a port of its own. */
export function isGateway (port: number, { split = false } = {}): void { gateways.set(port, { split }) }

/** Throws where an answer of a gateway is none that the document allows. Ports that are no gateway's are left alone. */
export function assertDocumented (port: number, asked: Asked, answer: HttpAnswer, whole = true): void {
  const gateway = gateways.get(port)
  if (!gateway) return
  const why = undocumented({ ...asked, ...gateway }, answer, whole)
  if (why !== undefined) throw new Error(why)
}
