/** Answers that a dashboard asks for over and over: each with an ETag, and 304 where nothing moved (DESIGN section 6). */
import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { matchesWeakly } from './conditional.js'

type AnyReply = Pick<FastifyReply, 'raw'> & { headers (values: Record<string, string>): unknown, code (status: number): unknown, send (payload?: never): unknown }

/** Answers with JSON and its strong ETag; `If-None-Match` of it is answered 304. */
export function sendTagged ({ headers }: Pick<FastifyRequest, 'headers'>, reply: AnyReply, body: unknown): never {
  const bytes = Buffer.from(JSON.stringify(body))
  const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`
  reply.headers({ etag, 'cache-control': 'private, no-cache', vary: 'Authorization, Origin' })
  if (matchesWeakly(headers['if-none-match'], etag)) {
    reply.code(304)
    return reply.send() as never
  }
  reply.headers({ 'content-type': 'application/json; charset=utf-8' })
  return reply.send(bytes as never) as never
}

/** The same in the description of a route. */
export const taggedResponses = (description: string, schema: object): Record<number, object> => {
  const headers = { ETag: { description: 'strong, of what is answered', type: 'string' }, 'Cache-Control': { type: 'string' }, Vary: { type: 'string' } }
  return {
    200: { description, headers, content: { 'application/json': { schema } } },
    304: { type: 'null', description: 'the caller has this', headers }
  }
}
