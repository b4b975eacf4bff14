/** An operator takes a module's new build in with one POST (DESIGN sections 3 and 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { MeshError } from '../src/core/errors.js'
import { isName } from '../src/core/names.js'
import { principalOf } from '../src/http/auth.js'
import { sendJson } from '../src/http/json.js'
import { Name } from '../src/schemas/common.js'
import { problemResponses } from '../src/schemas/problem.js'
import { TakeInAnswerSchema, TakeInBodySchema } from '../src/schemas/take-in.js'

const answer = (description: string): object => ({ description, content: { 'application/json': { schema: Type.Ref('TakeInAnswer') } } })

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addSchema(TakeInAnswerSchema)
  const { takeIns } = app.core

  app.post('/modules/:name/take-in', {
    onRequest: app.only('operator'),
    // Nothing, whatever content type it bears, is the same as an empty object.
    preValidation: async (request) => { request.body ??= {} },
    schema: {
      operationId: 'takeIn',
      summary: "Take a module's new build in",
      description: 'Registers the module at the fingerprint of its trunk value, composes its nodes, then the bus\'s node, then writes the grant. Safe to repeat.',
      tags: ['take-in'],
      security: [{ bearer: [] }],
      params: Type.Object({ name: Name() }),
      body: TakeInBodySchema,
      response: {
        200: answer('how it ended, and what was done'),
        202: answer('`waiting`: the build that the trunk value names is not there yet; its done key wakes the take-in'),
        ...problemResponses('not-held', 'too-large', 'unsupported-media-type', 'step-failed', 'unavailable')
      }
    }
  }, async (request, reply) => {
    const { name } = request.params
    if (!isName(name)) throw new MeshError('invalid', 'the module\'s name is none')
    const { reason } = request.body
    const who = `operator ${principalOf(request).name}`
    const result = await takeIns.run(name, reason === undefined ? who : `${who}: ${reason}`)
    if (result.outcome === 'not-held' || result.outcome === 'removed') {
      throw new MeshError('not-held', `${name} is not in the catalogue: an operator adds it as inventory module.${name}`)
    }
    return sendJson(reply.code(result.outcome === 'waiting' ? 202 : 200).header('cache-control', 'no-store'), result)
  })
}

export default routes
