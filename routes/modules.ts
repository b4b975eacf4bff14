/** Where each module stands, and the records of its take-ins (DESIGN section 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { MeshError } from '../src/core/errors.js'
import { limits } from '../src/core/limits.js'
import { namePattern } from '../src/core/names.js'
import { describedName, describedPaging, describedPlaces, named, nameOf, numberOf, pagingOf, placesOf } from '../src/http/query.js'
import { sendTagged, taggedResponses } from '../src/http/tagged.js'
import { ModuleDetailSchema, ModuleListSchema, RecordListSchema } from '../src/schemas/module-state.js'
import { problemResponses } from '../src/schemas/problem.js'
import { proofs } from '../src/schemas/proofs.js'

type Query = Record<string, unknown>

const routes: FastifyPluginAsyncTypebox = async (app) => {
  for (const schema of [ModuleListSchema, ModuleDetailSchema, RecordListSchema]) app.addSchema(schema)
  const { state } = app.core
  const common = { tags: ['state'], security: proofs }
  const mayLook = app.only('operator', 'reader')
  // The schemas describe; what they name is checked with a sentence for each.
  const validatorCompiler = () => () => true

  const notHeld = async (name: string): Promise<MeshError> => {
    const nodes = await state.strays(name)
    const still = nodes.length > 0 ? `, though it still stands on ${nodes.join(', ')}` : ''
    return new MeshError('not-held', `${name} is not in the catalogue${still}: an operator adds it as inventory module.${name}`)
  }

  app.get('/modules', {
    onRequest: mayLook,
    validatorCompiler,
    schema: {
      ...common,
      operationId: 'listModules',
      summary: 'Where each module of the catalogue stands, by name',
      querystring: Type.Object({
        ...describedPaging,
        ...describedPlaces,
        node: Type.Optional(Type.String({ pattern: namePattern, description: 'those assigned to this node, or standing there' }))
      }),
      response: { ...taggedResponses('a page of modules', Type.Ref('ModuleList')), ...problemResponses('unavailable') }
    }
  }, async (request, reply) => {
    const query = request.query as Query
    return sendTagged(request, reply, await state.modules({ ...pagingOf(query), where: placesOf(query), node: nameOf(query, 'node') }))
  })

  app.get('/modules/:name', {
    onRequest: mayLook,
    validatorCompiler,
    schema: {
      ...common,
      operationId: 'getModule',
      summary: 'One module: what it should be at, what is registered, what stands on each node, and why it is where it is',
      params: describedName,
      response: { ...taggedResponses('the module', Type.Ref('Module')), ...problemResponses('not-held', 'unavailable') }
    }
  }, async (request, reply) => {
    const name = named(request.params, 'module')
    const found = await state.module(name)
    if (!found) throw await notHeld(name)
    return sendTagged(request, reply, found)
  })

  app.get('/modules/:name/take-ins', {
    onRequest: mayLook,
    validatorCompiler,
    schema: {
      ...common,
      operationId: 'listTakeIns',
      summary: "The records of a module's take-ins, the newest first",
      description: `As many as the bucket keeps, ${limits.recordsKept} at most.`,
      params: describedName,
      querystring: Type.Object({
        limit: Type.Optional(Type.Integer({ minimum: 1, maximum: limits.recordsKept, default: limits.recordsKept, description: 'how many at most' })),
        before: Type.Optional(Type.Integer({ minimum: 1, description: 'the last revision of the page before' }))
      }),
      response: { ...taggedResponses('a page of records', Type.Ref('RecordList')), ...problemResponses('not-held', 'unavailable') }
    }
  }, async (request, reply) => {
    const name = named(request.params, 'module')
    const query = request.query as Query
    const paging = { limit: numberOf(query, 'limit', limits.recordsKept) ?? limits.recordsKept, before: numberOf(query, 'before', Number.MAX_SAFE_INTEGER) }
    const found = await state.takeIns(name, paging)
    if (!found) throw await notHeld(name)
    return sendTagged(request, reply, found)
  })
}

export default routes
