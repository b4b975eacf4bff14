/** Errors on the wire: RFC 9457 problem objects, one form for every route and for the socket (DESIGN section 6). */
import type { FastifyReply } from 'fastify'
import { MeshError, problems, type ProblemName } from '../core/errors.js'

export interface Problem { type: string, title: string, status: number, detail: string, [member: string]: unknown }

export const problemType = (name: ProblemName): string => `urn:mesh-gateway:problem:${name}`

/** The problem object of an error. */
export function problemOf (error: MeshError): Problem {
  const { status, title } = problems[error.problem]
  return { type: problemType(error.problem), title, status, detail: error.message, ...error.members }
}

/** Headers a problem always bears. */
function headersOf (error: MeshError): Record<string, string> {
  return {
    'cache-control': 'no-store',
    ...(error.status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    // Named by itself, `Upgrade` would keep the connection open although the client asked for its end.
    ...(error.status === 426 ? { upgrade: 'websocket', connection: 'Upgrade, close' } : {}),
    ...(error.retryAfterS === undefined ? {} : { 'retry-after': String(error.retryAfterS) })
  }
}

/** Answers with the problem of an error. */
export function sendProblem (reply: FastifyReply, error: MeshError): FastifyReply {
  reply.removeHeader('etag')
  reply.code(error.status).headers(headersOf(error)).type('application/problem+json; charset=utf-8')
  return reply.send(Buffer.from(JSON.stringify(problemOf(error))))
}
