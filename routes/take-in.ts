/** An operator takes a module's new build in with one POST (DESIGN sections 3 and 6). */
import { Type, type FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { asMeshError, MeshError } from '../src/core/errors.js'
import { limits } from '../src/core/limits.js'
import { isName, namePattern } from '../src/core/names.js'
import type { StepDone } from '../src/core/take-in/take.js'
import { principalOf } from '../src/http/auth.js'
import { matchesStrongly, matchesWeakly, waitOf } from '../src/http/conditional.js'
import { wantsEvents } from '../src/http/event-stream.js'
import { sendJson } from '../src/http/json.js'
import { TakeInStream } from '../src/http/take-in-stream.js'
import { PlanSchema } from '../src/schemas/plan.js'
import { problemResponses } from '../src/schemas/problem.js'
import { proofs } from '../src/schemas/proofs.js'
import { TakeInAnswerSchema, TakeInBodySchema } from '../src/schemas/take-in.js'

const answer = (description: string): object => ({ description, content: { 'application/json': { schema: Type.Ref('TakeInAnswer') } } })

/** The same, or each step as an event. */
const answerOrEvents = (description: string): object => ({
  description,
  content: { 'application/json': { schema: Type.Ref('TakeInAnswer') }, 'text/event-stream': { schema: Type.String() } }
})

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addSchema(TakeInAnswerSchema)
  app.addSchema(PlanSchema)
  const { takeIns } = app.core

  const named = (name: string): string => {
    if (!isName(name)) throw new MeshError('invalid', 'the name is none of a module: lower-case letters, digits and dashes, at most 63')
    return name
  }
  const notHeld = (name: string): MeshError => new MeshError('not-held', `${name} is not in the catalogue: an operator adds it as inventory module.${name}`)
  const params = Type.Object({ name: Type.String({ pattern: namePattern }) })

  app.get('/modules/:name/take-in', {
    onRequest: app.only('operator', 'reader'),
    schema: {
      operationId: 'planTakeIn',
      summary: 'What a take-in would do now',
      description: 'Runs the steps without writing anything. The POST with `If-Match` of this ETag carries out this plan alone.',
      tags: ['take-in'],
      security: proofs,
      params,
      response: {
        200: {
          description: 'each step, and how each composition would differ',
          headers: { ETag: { description: 'of what would be done', type: 'string' } },
          content: { 'application/json': { schema: Type.Ref('Plan') } }
        },
        304: { type: 'null', description: 'the caller has this plan', headers: { ETag: { type: 'string' } } },
        ...problemResponses('not-held', 'unavailable')
      }
    }
  }, async (request, reply) => {
    const name = named(request.params.name)
    const planned = await takeIns.plan(name)
    if (!planned) throw notHeld(name)
    reply.headers({ etag: planned.etag, 'cache-control': 'private, no-cache', vary: 'Authorization, Origin' })
    if (matchesWeakly(request.headers['if-none-match'], planned.etag)) return reply.code(304).send()
    return sendJson(reply, planned.plan)
  })

  app.post('/modules/:name/take-in', {
    onRequest: app.only('operator'),
    // Nothing, whatever content type it bears, is the same as an empty object.
    preValidation: async (request) => { request.body ??= {} },
    schema: {
      operationId: 'takeIn',
      summary: "Take a module's new build in",
      description: "Registers the module at the fingerprint of its trunk value, composes its nodes, then the bus's node, then writes the grant. Safe to repeat.",
      tags: ['take-in'],
      security: proofs,
      params,
      headers: Type.Object({
        accept: Type.Optional(Type.String({
          description: '`text/event-stream`: events `step` {step, ms, error?} as each step ends, then `done` with the answer or `failed` with the problem; what is ' +
            'known before the first step is answered as without events'
        })),
        prefer: Type.Optional(Type.String({ description: `\`wait=S\`: wait up to S seconds, ${limits.preferWaitS} at most, for a build that is not there yet` })),
        'if-match': Type.Optional(Type.String({ description: 'the ETag of the plan that alone is to be carried out' }))
      }),
      body: TakeInBodySchema,
      response: {
        200: answerOrEvents('how it ended, and what was done'),
        202: answer('`waiting`: the build that the trunk value names is not there yet; its done key wakes the take-in'),
        ...problemResponses('not-held', 'plan-changed', 'too-large', 'unsupported-media-type', 'step-failed', 'unavailable')
      }
    }
  }, async (request, reply) => {
    const name = named(request.params.name)
    const { 'if-match': ifMatch, prefer } = request.headers
    const { reason } = request.body
    const who = `operator ${principalOf(request).name}`
    const stream = wantsEvents(request.headers.accept) ? new TakeInStream(reply) : undefined
    try {
      const result = await takeIns.run(name, reason === undefined ? who : `${who}: ${reason}`, {
        ...(ifMatch === undefined ? {} : { ifMatch: (etag: string) => matchesStrongly(ifMatch, etag) }),
        ...(stream ? { progress: (step: StepDone) => stream.step(step) } : {}),
        waitMs: 1000 * waitOf(prefer)
      })
      if (result.outcome === 'not-held' || result.outcome === 'removed') throw notHeld(name)
      if (!stream) return sendJson(reply.code(result.outcome === 'waiting' ? 202 : 200).header('cache-control', 'no-store'), result)
      stream.done(result)
    } catch (error) {
      if (!stream?.isOpen) throw error
      stream.failed(asMeshError(error))
    } finally {
      stream?.close()
    }
    return reply
  })
}

export default routes
