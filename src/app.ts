/** The HTTP side as a plugin that never listens and knows no bus: plugins in order, then the routes (DESIGN section 10). */
import { join } from 'node:path'
import type { Server as TlsServer } from 'node:tls'
import autoload from '@fastify/autoload'
import cors from '@fastify/cors'
import Fastify, { LogController, type FastifyBaseLogger, type FastifyInstance, type FastifyServerOptions, type RouteOptions } from 'fastify'
import health from '../routes/health.js'
import { corsOrigins, type Environment } from './config.js'
import type { Core } from './core/core.js'
import { limits } from './core/limits.js'
import auth from './http/auth.js'
import body from './http/body.js'
import { answerClientError, answerExpectation } from './http/client-error.js'
import connections from './http/connections.js'
import continues from './http/continue.js'
import errors, { addMethodNotAllowed, answerFrameworkError } from './http/errors.js'
import openapi from './http/openapi.js'
import { allowedOrigins } from './http/origin.js'
import pipeline from './http/pipeline.js'
import { Rates } from './http/rate.js'
import requestLog from './http/request-log.js'
import { Sessions } from './http/sessions.js'
import target from './http/target.js'
import type { Tls } from './http/tls.js'
import upgrade from './http/upgrade.js'
import type { Identity } from './identity/identity.js'

export interface AppOptions {
  core: Core
  config: Environment
  identity: Identity
  /** What the port is served with; plain HTTP without. */
  tls?: Tls | undefined
  logger?: FastifyServerOptions['logger'] | FastifyBaseLogger
}

declare module 'fastify' {
  interface FastifyInstance {
    core: Core
    config: Environment
    sessions: Sessions
    /** Whether health is served here: everywhere, or on the port of its own alone. */
    operations: boolean
    /** Origins of web pages that may open a websocket; known once the port is. */
    origins (): Set<string>
  }
}

/** The methods that a path may have; each path answers those it does not have with 405. */
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'TRACE']

/** What every port of a gateway has: one form of errors, bounded requests, one line a request. */
function createServer (logger: AppOptions['logger'], tls?: Tls): FastifyInstance {
  const server = {
    // Without a Host header the request is refused by us, in the form that errors have.
    requireHostHeader: false,
    headersTimeout: limits.requestMs,
    connectionsCheckingInterval: limits.requestLookMs
  }
  const options: FastifyServerOptions = {
    ...(tls ? { https: { ...server, ...tls.options } } : { http: server }),
    ...(typeof logger === 'object' && 'child' in logger ? { loggerInstance: logger as FastifyBaseLogger } : { logger }),
    // One logger for all: a child of it for each request would cost more than most of them log.
    childLoggerFactory: (parent) => parent,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: limits.bodyBytes,
    requestTimeout: limits.requestMs,
    connectionTimeout: limits.stuckMs,
    return503OnClosing: false,
    routerOptions: { maxParamLength: limits.targetBytes },
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, useDefaults: false, allErrors: false } },
    frameworkErrors: answerFrameworkError,
    clientErrorHandler: answerClientError
  }
  const app = Fastify(options) as FastifyInstance
  app.server.on('checkExpectation', answerExpectation)
  return app
}

/** The port of its own for health, where `OPS_PORT` asks for one. */
export async function buildOperations ({ core, logger = false }: Pick<AppOptions, 'core' | 'logger'>): Promise<FastifyInstance> {
  const app = createServer(logger)
  app.decorate('core', core).decorate('operations', true)
  await app.register(connections, { closeWithinMs: limits.drainGraceMs })
  await app.register(continues)
  await app.register(pipeline)
  await app.register(requestLog)
  await app.register(errors)
  await app.register(target)
  await app.register(health)
  return app
}

export async function buildApp ({ core, config, identity, tls, logger = false }: AppOptions): Promise<FastifyInstance> {
  const app = createServer(logger, tls)
  if (tls) {
    const endFollowing = tls.follow(app.server as unknown as TlsServer)
    app.addHook('onClose', async () => endFollowing())
  }
  const sessions = new Sessions({ maxPerModule: config.MAX_CONNECTIONS_PER_MODULE, slowClientMs: config.SLOW_CLIENT_MS, identity })
  app.decorate('core', core).decorate('config', config).decorate('sessions', sessions).decorate('operations', config.OPS_PORT === undefined)
  app.decorate('origins', () => {
    const address = app.server.address()
    return allowedOrigins(config, typeof address === 'object' && address ? address.port : config.PORT)
  })

  const routes: RouteOptions[] = []
  app.addHook('onRoute', (route) => { if (!route.schema?.hide) routes.push(route) })

  await app.register(connections, { closeWithinMs: limits.drainAnswersPart * config.DRAIN_MS })
  await app.register(continues)
  await app.register(pipeline)
  await app.register(requestLog)
  await app.register(errors)
  const origins = corsOrigins(config)
  if (origins.length > 0) {
    await app.register(cors, {
      origin: origins,
      methods: ['GET', 'HEAD', 'POST', 'PUT', 'DELETE'],
      allowedHeaders: ['Authorization', 'Content-Type', 'If-Match', 'If-None-Match', 'Prefer', 'Cache-Control', 'Last-Event-ID'],
      exposedHeaders: ['ETag', 'Age', 'Retry-After'],
      maxAge: 600,
      strictPreflight: false
    })
  }
  await app.register(target)
  await app.register(upgrade)
  await app.register(body)
  await app.register(auth, { identity, rates: new Rates(config.RATE_LIMIT) })
  await app.register(openapi)
  await app.register(autoload, { dir: join(import.meta.dirname, '../routes'), forceESM: true })
  app.after(() => addMethodNotAllowed(app, [...routes], origins.length > 0 ? methods : [...methods, 'OPTIONS']))
  return app
}
