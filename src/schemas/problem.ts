import { Type } from '@sinclair/typebox'
import { problems, type ProblemName } from '../core/errors.js'
import { OneOf } from './common.js'

const names = Object.keys(problems) as ProblemName[]

/** An error on any route and, as `error.data`, on the socket (RFC 9457). */
export const ProblemSchema = Type.Object({
  type: OneOf(names.map((name) => `urn:mesh-gateway:problem:${name}`), { description: 'which problem; each is explained in docs/errors.md' }),
  title: Type.String(),
  status: Type.Integer({ minimum: 400, maximum: 599 }),
  detail: Type.String({ description: 'what is wrong, what was expected, what to do' })
}, { $id: 'Problem', title: 'Problem', additionalProperties: true })

const headersOf: Record<number, Record<string, object>> = {
  401: { 'WWW-Authenticate': { type: 'string', const: 'Bearer' } },
  405: { Allow: { type: 'string' } },
  426: { Upgrade: { type: 'string', const: 'websocket' } },
  429: { 'Retry-After': { type: 'integer', minimum: 0 } },
  503: { 'Retry-After': { type: 'integer', minimum: 0 } }
}

/** What may happen on every route that asks who is there. */
const always: ProblemName[] = ['invalid', 'unauthenticated', 'forbidden', 'uri-too-long', 'too-many-requests', 'internal', 'overloaded']

/** What may happen on a route that is open to anybody. */
const open: ProblemName[] = ['invalid', 'uri-too-long']

/** The `response` schemas of problems: those named and those that any route may answer. */
export const problemResponses = (...of: ProblemName[]): Record<number, object> => responsesOf([...always, ...of])

/** The same for a route that asks nobody who is there. */
export const openResponses = (...of: ProblemName[]): Record<number, object> => responsesOf([...open, ...of])

function responsesOf (names: ProblemName[]): Record<number, object> {
  const byStatus = new Map<number, ProblemName[]>()
  for (const name of new Set(names)) byStatus.set(problems[name].status, [...byStatus.get(problems[name].status) ?? [], name])
  return Object.fromEntries([...byStatus].sort(([a], [b]) => a - b).map(([status, named]) => [status, {
    description: named.map((name) => `\`${name}\`: ${problems[name].title}`).join('; '),
    ...(headersOf[status] ? { headers: headersOf[status] } : {}),
    content: { 'application/problem+json': { schema: Type.Ref('Problem') } }
  }]))
}
