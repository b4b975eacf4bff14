/** The nodes, and where each module stands on them (DESIGN section 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { MeshError } from '../src/core/errors.js'
import { describedName, describedPaging, describedPlaces, named, pagingOf, placesOf } from '../src/http/query.js'
import { sendTagged, taggedResponses } from '../src/http/tagged.js'
import { NodeDetailSchema, NodeListSchema } from '../src/schemas/node-state.js'
import { problemResponses } from '../src/schemas/problem.js'
import { proofs } from '../src/schemas/proofs.js'

type Query = Record<string, unknown>

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addSchema(NodeListSchema)
  app.addSchema(NodeDetailSchema)
  const { state } = app.core
  const common = { tags: ['state'], security: proofs }
  const mayLook = app.only('operator', 'reader')
  const validatorCompiler = () => () => true

  app.get('/nodes', {
    onRequest: mayLook,
    validatorCompiler,
    schema: {
      ...common,
      operationId: 'listNodes',
      summary: 'The nodes that are known or named, and how many modules stand where on each',
      querystring: Type.Object(describedPaging),
      response: { ...taggedResponses('a page of nodes', Type.Ref('NodeList')), ...problemResponses('unavailable') }
    }
  }, async (request, reply) => sendTagged(request, reply, await state.nodes(pagingOf(request.query as Query))))

  app.get('/nodes/:name', {
    onRequest: mayLook,
    validatorCompiler,
    schema: {
      ...common,
      operationId: 'getNode',
      summary: 'One node, and where each module stands there',
      params: describedName,
      querystring: Type.Object({ ...describedPaging, ...describedPlaces }),
      response: { ...taggedResponses('the node, with a page of its modules', Type.Ref('Node')), ...problemResponses('not-found', 'unavailable') }
    }
  }, async (request, reply) => {
    const name = named(request.params, 'node')
    const query = request.query as Query
    const found = await state.node(name, { ...pagingOf(query), where: placesOf(query) })
    if (!found) throw new MeshError('not-found', `there is no node ${name}: an operator adds it as inventory node.${name}`)
    return sendTagged(request, reply, found)
  })
}

export default routes
