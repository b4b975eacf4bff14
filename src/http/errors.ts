/** Every error of a request becomes a problem: core's, the framework's, and those of paths and methods that are none. */
import { METHODS } from 'node:http'
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import fp from 'fastify-plugin'
import { asMeshError, MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { ProblemSchema } from '../schemas/problem.js'
import { misfitOf } from './misfit.js'
import { sendProblem } from './problem.js'

const badJson = (): MeshError => new MeshError('invalid', 'the body is no JSON, or holds a member that is not taken (__proto__, constructor.prototype)')

/** What the framework's own errors mean; its words may hold what was sent, so they are not said back. */
function ofFramework (error: FastifyError, request: FastifyRequest): MeshError | undefined {
  switch (error.code) {
    case 'FST_ERR_BAD_URL': return new MeshError('invalid', 'the path holds a broken percent-escape: escape each byte of UTF-8 as %XX')
    case 'FST_ERR_MAX_PARAM_LENGTH': return new MeshError('uri-too-long', `a segment of the path is longer than ${limits.targetBytes} bytes`)
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new MeshError('unsupported-media-type', 'the body is not JSON: send application/json, or no body')
    case 'FST_ERR_CTP_BODY_TOO_LARGE': return new MeshError('too-large', `the body is larger than ${limits.bodyBytes} bytes`)
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new MeshError('invalid', 'the body is not as long as Content-Length says')
    case 'FST_ERR_CTP_INVALID_JSON_BODY': return badJson()
    case 'FST_ERR_VALIDATION': return new MeshError('invalid', misfitOf(error, request))
  }
  if (error instanceof SyntaxError) return badJson()
  if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500) return new MeshError('invalid', 'the request is not valid')
  return undefined
}

export function answerError (error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
  const known = error instanceof MeshError ? error : ofFramework(error, request) ?? asMeshError(error)
  if (known.problem === 'internal') request.log.error({ err: known.cause ?? known }, 'a request failed')
  request.problem = known.problem
  sendProblem(reply, known)
}

/** The same for what fails before any hook runs: a refused upgrade ends its connection here, since nobody reads it any more. */
export function answerFrameworkError (error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
  if (request.raw.headers.upgrade !== undefined) {
    reply.header('connection', 'close').raw.once('finish', () => request.raw.socket.destroySoon())
  }
  answerError(error, request, reply)
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The name of the problem that answered, for the request's line in the log. */
    problem: string | null
  }
}

/** Adds a 405 with `Allow` for the methods that a path does not have. Called when all routes stand. */
export function addMethodNotAllowed (app: FastifyInstance, routes: readonly RouteOptions[], all: readonly string[]): void {
  const methods = new Map<string, Set<string>>()
  for (const { url, method } of routes) {
    if (url.includes('*')) continue
    const of = methods.get(url) ?? new Set()
    for (const one of [method].flat()) of.add(one)
    methods.set(url, of)
  }
  // Those of WebDAV and the like, which the framework does not know by itself, are methods that a path does not have, too.
  const unknown = METHODS.filter((method) => method !== 'CONNECT' && !app.supportedMethods.includes(method))
  for (const method of unknown) app.addHttpMethod(method)
  for (const [url, has] of methods) {
    const others = [...all, ...unknown].filter((method) => !has.has(method))
    const allow = [...has].sort().join(', ')
    app.route({
      method: others,
      url,
      // Its own error, an upgrade or not.
      config: { websocketOnly: true },
      schema: { hide: true },
      // Before the body is read: whatever it is, the method is not there.
      onRequest: async (_request, reply) => {
        reply.header('allow', allow)
        throw new MeshError('method-not-allowed', `this path answers ${allow}`)
      },
      handler: async () => undefined
    })
  }
}

export default fp(async (app) => {
  app.addSchema(ProblemSchema)
  app.decorateRequest('problem', null)
  app.setErrorHandler(answerError)
  app.setNotFoundHandler(async () => { throw new MeshError('not-found', 'there is nothing at this path: /openapi.json lists what there is') })
}, { name: 'errors' })
