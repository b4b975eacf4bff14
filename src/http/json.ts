import type { FastifyReply } from 'fastify'

/** As much of a reply as is needed here; the framework's type of it depends on the route's schema. */
type AnyReply = Pick<FastifyReply, 'raw'> & { header (name: string, value: string): unknown, send (payload: never): unknown }

/**
 * Answers with JSON as it is made here: a serializer built from a schema would drop what the schema does not name. Its result is
 * what an async handler hands back; the schema's type says nothing of bytes.
 */
export function sendJson (reply: AnyReply, body: unknown): never {
  reply.header('content-type', 'application/json; charset=utf-8')
  return reply.send(Buffer.from(JSON.stringify(body)) as never) as never
}
