/** Health: open to anybody, on a port of its own where `OPS_PORT` says so (DESIGN section 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { sendJson } from '../src/http/json.js'
import { openResponses } from '../src/schemas/problem.js'

const HealthSchema = Type.Object({
  ready: Type.Boolean({ description: 'all is there, and the gateway is not going down' }),
  bus: Type.Boolean({ description: 'the gateway is connected to the bus' }),
  hearing: Type.Boolean({ description: 'changes of values are heard' }),
  buckets: Type.Boolean({ description: 'all buckets are there' }),
  missing: Type.Array(Type.String(), { description: 'buckets that are missing' })
})

const json = (description: string, schema: object): object => ({ description, content: { 'application/json': { schema } } })

const routes: FastifyPluginAsyncTypebox = async (app) => {
  if (!app.operations) return
  const { core } = app

  app.get('/livez', {
    schema: {
      operationId: 'livez',
      summary: 'Whether the process answers',
      tags: ['operations'],
      response: { 200: json('it does', Type.Object({ live: Type.Literal(true) })), ...openResponses() }
    }
  }, async (_request, reply) => sendJson(reply.header('cache-control', 'no-store'), { live: true }))

  app.get('/readyz', {
    schema: {
      operationId: 'readyz',
      summary: 'Whether requests can be answered: is the bus there, can changes be heard, are the buckets there',
      tags: ['operations'],
      response: {
        200: json('all is there', HealthSchema),
        503: { ...json('something is missing, or the gateway is going down', HealthSchema), headers: { 'Retry-After': { type: 'integer', minimum: 0 } } },
        ...openResponses()
      }
    }
  }, async (_request, reply) => {
    const health = core.health()
    if (!health.ready) reply.code(503).header('retry-after', '1')
    return sendJson(reply.header('cache-control', 'no-store'), health)
  })
}

export default routes
