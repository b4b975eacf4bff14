/** The description of the API: open to anybody (DESIGN section 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { descriptionYaml } from '../src/http/openapi.js'
import { openResponses } from '../src/schemas/problem.js'

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const description = Type.Object({}, { additionalProperties: true })
  // Made once: they are open to anybody, and large.
  let yaml: Buffer | undefined
  let json: Buffer | undefined

  app.get('/openapi.yaml', {
    schema: {
      operationId: 'openapiYaml',
      summary: 'This description, as YAML',
      tags: ['operations'],
      response: { 200: { description: 'OpenAPI 3.1', content: { 'application/yaml': { schema: Type.String() } } }, ...openResponses() }
    }
  }, async (_request, reply) => reply.type('application/yaml; charset=utf-8').send((yaml ??= Buffer.from(descriptionYaml(app))) as never))

  app.get('/openapi.json', {
    schema: {
      operationId: 'openapiJson',
      summary: 'This description, as JSON',
      tags: ['operations'],
      response: { 200: { description: 'OpenAPI 3.1', content: { 'application/json': { schema: description } } }, ...openResponses() }
    }
  }, async (_request, reply) => reply.type('application/json; charset=utf-8').send((json ??= Buffer.from(JSON.stringify(app.swagger()))) as never))
}

export default routes
