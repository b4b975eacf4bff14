/** A module's own values, read once: who it is stands in its credential, never in the request (DESIGN section 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { MeshError } from '../src/core/errors.js'
import type { ValueName } from '../src/core/names.js'
import { askedValue, checkKind } from '../src/core/provision/asked.js'
import type { Entry } from '../src/core/provision/entry.js'
import { lastGood } from '../src/core/provision/last-good.js'
import { principalOf } from '../src/http/auth.js'
import { hasDirective, matchesWeakly, secondsOf } from '../src/http/conditional.js'
import { EventStream, wantsEvents } from '../src/http/event-stream.js'
import { sendBody } from '../src/http/value-body.js'
import { sendJson } from '../src/http/json.js'
import { unauthenticated } from '../src/identity/principal.js'
import { OneOf } from '../src/schemas/common.js'
import { problemResponses } from '../src/schemas/problem.js'
import { proofs } from '../src/schemas/proofs.js'

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
  const { sessions } = app

  app.get('/provision/:kind/:key', {
    onRequest: app.only('module'),
    // Everything here is text, and core checks it: a compiled schema could only say so again, on the most frequent request of all.
    validatorCompiler: () => () => true,
    schema: {
      operationId: 'getValue',
      summary: 'One of the calling module\'s values',
      tags: ['provision'],
      security: proofs,
      params: Type.Object({ kind: Kind, key: Key }),
      headers: Type.Object({
        'if-none-match': Type.Optional(Type.String({ description: 'ETags that the caller has: 304 where one is current' })),
        'cache-control': Type.Optional(Type.String({
          description: '`no-cache`: ask the provisioner even where the value is known. `stale-if-error=S`: take the last known value, with `Age`, in place of ' +
            'a 502, 503 or 504, where it was known current at most S seconds ago and no refusal was heard since'
        })),
        accept: Type.Optional(Type.String({ description: '`text/event-stream`: the value and each of its changes as events' })),
        'last-event-id': Type.Optional(Type.String({ description: 'of an event stream: the id of the last event that was handed' }))
      }),
      response: {
        200: {
          description: "the value's own bytes, or events: `value` {kind, key, value, etag}, `refused` {kind, key, refused}, `stale` {kind, key, since}, `live` {kind, key}",
          headers: { ...valueHeaders, Age: { description: 'with `stale-if-error`: seconds since the value was last known current', type: 'integer' } },
          content: { 'application/json': { schema: Type.Unknown({ description: 'any JSON' }) }, 'text/event-stream': { schema: Type.String() } }
        },
        304: { type: 'null', description: 'the caller has the current value', headers: valueHeaders },
        ...problemResponses('refused', 'not-declared', 'bad-answer', 'unavailable', 'timeout')
      }
    }
  }, (request, reply) => {
    const name = askedValue(principalOf(request).name, request.params.kind, request.params.key)
    if (request.method === 'GET' && wantsEvents(request.headers.accept)) return openStream(request, reply, name)
    const asked = request.headers['cache-control']
    const noCache = hasDirective(asked, 'no-cache')
    const known = noCache ? undefined : view.peek(name)
    // No promise where nothing is waited for: this is what most requests are.
    if (known) return sendSaid(request, reply, known)
    return view.read(name, { noCache }).then((entry) => sendSaid(request, reply, entry), (error: unknown) => {
      const last = lastGood(view.lastKnown(name), secondsOf(asked, 'stale-if-error'))
      if (!last) throw error
      return sendBody(reply.headers({ ...cacheHeaders, etag: last.said.etag, age: last.ageS }), last.said)
    })
  })

  /** What is said of a value that is known current. */
  function sendSaid (request: FastifyRequest, reply: FastifyReply, { said }: Entry): FastifyReply {
    if (!said) throw new MeshError('unavailable', 'the value is not known')
    reply.headers(cacheHeaders)
    if ('refused' in said) throw new MeshError(said.code === 404 ? 'not-declared' : 'refused', said.refused)
    reply.header('etag', said.etag)
    if (matchesWeakly(request.headers['if-none-match'], said.etag)) return reply.code(304).send()
    return sendBody(reply, said)
  }

  /** The value and each of its changes as events. A connection that lives ends with its credential, so an expired one opens none. */
  function openStream (request: FastifyRequest, reply: FastifyReply, name: ValueName): FastifyReply {
    const principal = principalOf(request)
    if (principal.expiresAt <= Date.now()) throw unauthenticated('expired, within the leeway that a request has and a connection has not')
    // Gone while its token was verified: nobody would tell us again that it is.
    if (request.raw.socket.destroyed || reply.raw.destroyed) return reply.hijack()
    sessions.enter(principal.name)
    const lastEventId = request.headers['last-event-id']
    reply.hijack()
    const stream = new EventStream(reply.raw, {
      view, principal, name, lastEventId: typeof lastEventId === 'string' ? lastEventId : undefined, headers: { ...reply.getHeaders(), vary: cacheHeaders.vary }
    })
    stream.onClose(() => sessions.leave(principal.name))
    sessions.add(stream)
    return reply
  }

  app.get('/provision/:kind', {
    onRequest: app.only('module'),
    schema: {
      operationId: 'listKeys',
      summary: 'The keys that the calling module may ask',
      tags: ['provision'],
      security: proofs,
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
