/** Operators set a module's config, or back to its default; the change is composed at once (DESIGN section 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { parseJson } from '../src/core/documents.js'
import { BadDocument, MeshError } from '../src/core/errors.js'
import { limits } from '../src/core/limits.js'
import { namePattern } from '../src/core/names.js'
import type { Change, Condition } from '../src/core/settings/setting.js'
import { principalOf } from '../src/http/auth.js'
import { matchesStrongly, matchesWeakly } from '../src/http/conditional.js'
import { sendJson } from '../src/http/json.js'
import { keyed, named } from '../src/http/query.js'
import { problemResponses } from '../src/schemas/problem.js'
import { proofs } from '../src/schemas/proofs.js'
import { SettingAnswerSchema } from '../src/schemas/setting.js'

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** The value that a body is: its text is looked at, since a parsed number does not tell what it was. */
function valueOf (body: unknown): unknown {
  if (!(body instanceof Uint8Array)) throw new MeshError('invalid', 'the body is empty: send the value as JSON')
  let text: string
  try {
    text = utf8.decode(body)
  } catch {
    throw new MeshError('invalid', 'the body is not UTF-8')
  }
  try {
    return parseJson('the body', text)
  } catch (error) {
    if (error instanceof BadDocument) throw new MeshError('invalid', error.message)
    throw error
  }
}

/** What `If-Match` and `If-None-Match` ask (RFC 9110, section 13.1). */
const conditionOf = ({ headers: { 'if-match': match, 'if-none-match': noneMatch } }: FastifyRequest): Condition => (etag) => {
  if (match !== undefined && (etag === undefined || !matchesStrongly(match, etag))) return false
  return noneMatch === undefined || etag === undefined || !matchesWeakly(noneMatch, etag)
}

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addSchema(SettingAnswerSchema)
  const { settings } = app.core

  // The body is the value itself, so its bytes are wanted, and an empty one is none.
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(/^application\/(?:[a-z0-9.+-]+\+)?json(?:\s*;|$)/i, { parseAs: 'buffer' }, (_request, body, done) => {
    done(null, body.length > 0 ? body : undefined)
  })
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => {
    if (body.length === 0) done(null, undefined)
    else done(new MeshError('unsupported-media-type', 'the body is not JSON: send the value as application/json'))
  })

  const change = async (request: FastifyRequest, reply: FastifyReply, value?: Change['value']): Promise<never> => {
    const name = named(request.params, 'module')
    const who = `operator ${principalOf(request).name}`
    const changed = await settings.change(name, { key: keyed(request.params), ...(value ? { value } : {}) }, { who, holds: conditionOf(request) })
    if (!changed) throw new MeshError('not-held', `${name} is not in the catalogue: an operator adds it as inventory module.${name}`)
    if (changed.etag !== undefined) reply.header('etag', changed.etag)
    return sendJson(reply.header('cache-control', 'no-store'), changed)
  }

  const common = {
    onRequest: app.only('operator'),
    // The schemas describe; what they name is checked with a sentence for each.
    validatorCompiler: () => () => true
  }
  const answer = {
    description: 'the setting as it stands, and the take-in that composed it',
    content: { 'application/json': { schema: Type.Ref('SettingAnswer') } }
  }
  const schema = {
    tags: ['settings'],
    security: proofs,
    params: Type.Object({
      name: Type.String({ pattern: namePattern }),
      key: Type.String({ description: 'one path segment, percent-decoded once; 1 to 256 characters, no control characters' })
    }),
    headers: Type.Object({
      'if-match': Type.Optional(Type.String({ description: 'the ETag of the setting that is to be changed; `*`: any, as long as there is one' })),
      'if-none-match': Type.Optional(Type.String({ description: '`*`: only where none is set yet' }))
    }),
    response: {
      200: answer,
      ...problemResponses('not-held', 'not-declared', 'precondition-failed', 'too-large', 'unsupported-media-type', 'schema', 'step-failed', 'unavailable')
    }
  }

  app.put('/modules/:name/config/:key', {
    ...common,
    schema: {
      ...schema,
      operationId: 'setConfig',
      summary: "Set a module's config",
      description: `The body is the value, any JSON. All settings of a module together may take ${limits.settingsBytes} bytes.`,
      body: Type.Unknown(),
      response: { ...schema.response, 200: { ...answer, headers: { ETag: { description: 'of the setting', type: 'string' } } } }
    }
  }, async (request, reply) => change(request as FastifyRequest, reply as unknown as FastifyReply, { is: valueOf(request.body) }))

  app.delete('/modules/:name/config/:key', {
    ...common,
    schema: { ...schema, operationId: 'unsetConfig', summary: "Set a module's config back to its default" }
  }, async (request, reply) => change(request as FastifyRequest, reply as unknown as FastifyReply))
}

export default routes
