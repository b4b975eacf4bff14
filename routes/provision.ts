/** A module's own values, read once: who it is stands in its credential, never in the request (DESIGN section 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { MeshError } from '../src/core/errors.js'
import { askedValue, checkKind } from '../src/core/provision/asked.js'
import { principalOf } from '../src/http/auth.js'
import { hasDirective, matchesWeakly } from '../src/http/conditional.js'
import { sendJson } from '../src/http/json.js'
import { OneOf } from '../src/schemas/common.js'
import { problemResponses } from '../src/schemas/problem.js'

// The schemas describe; what they name is checked in core, where the same rule serves the socket, and `secret` has its own answer.
const Kind = Type.String({ description: '`config` or `bound`; `secret` is known and always refused' })
const Key = Type.String({ description: 'one path segment, percent-decoded once; 1 to 256 characters, no control characters' })

const valueHeaders = {
  ETag: { description: "strong, of the value's bytes", type: 'string' },
  'Cache-Control': { type: 'string', const: 'private, no-cache' },
  Vary: { type: 'string' }
}

const cacheHeaders = { 'cache-control': 'private, no-cache', vary: 'Accept, Authorization, Origin' }

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { view } = app.core

  app.get('/provision/:kind/:key', {
    onRequest: app.only('module'),
    schema: {
      operationId: 'getValue',
      summary: 'One of the calling module\'s values',
      tags: ['provision'],
      security: [{ bearer: [] }],
      params: Type.Object({ kind: Kind, key: Key }),
      headers: Type.Object({
        'if-none-match': Type.Optional(Type.String({ description: 'ETags that the caller has: 304 where one is current' })),
        'cache-control': Type.Optional(Type.String({ description: '`no-cache`: ask the provisioner even where the value is known' }))
      }),
      response: {
        200: { description: "the value's own bytes", headers: valueHeaders, content: { 'application/json': { schema: Type.Unknown({ description: 'any JSON' }) } } },
        304: { type: 'null', description: 'the caller has the current value', headers: valueHeaders },
        ...problemResponses('refused', 'not-declared', 'bad-answer', 'unavailable', 'timeout')
      }
    }
  }, async (request, reply) => {
    const name = askedValue(principalOf(request).name, request.params.kind, request.params.key)
    const noCache = hasDirective(request.headers['cache-control'], 'no-cache')
    const known = noCache ? undefined : view.peek(name)
    const { said } = known ?? await view.read(name, { noCache })
    if (!said) throw new MeshError('unavailable', 'the value is not known')
    reply.headers(cacheHeaders)
    if ('refused' in said) throw new MeshError(said.code === 404 ? 'not-declared' : 'refused', said.refused)
    reply.header('etag', said.etag)
    if (matchesWeakly(request.headers['if-none-match'], said.etag)) return reply.code(304).send()
    return reply.type('application/json; charset=utf-8').send(said.bytes)
  })

  app.get('/provision/:kind', {
    onRequest: app.only('module'),
    schema: {
      operationId: 'listKeys',
      summary: 'The keys that the calling module may ask',
      tags: ['provision'],
      security: [{ bearer: [] }],
      params: Type.Object({ kind: Kind }),
      response: {
        200: {
          description: 'the keys of this kind',
          content: { 'application/json': { schema: Type.Object({ kind: OneOf(['config', 'bound']), keys: Type.Array(Type.String()) }) } }
        },
        ...problemResponses('refused', 'bad-answer', 'unavailable', 'timeout')
      }
    }
  }, async (request, reply) => {
    const { kind } = request.params
    if (kind === '') throw new MeshError('invalid', 'no kind given: name config or bound')
    checkKind(kind)
    const keys = await view.list(principalOf(request).name)
    return sendJson(reply.headers(cacheHeaders), { kind, keys: keys[kind] })
  })
}

export default routes
