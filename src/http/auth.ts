/** Who is asking, before anything else runs (DESIGN section 8). */
import type { Socket } from 'node:net'
import { Server as TlsServer } from 'node:tls'
import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify'
import fp from 'fastify-plugin'
import { MeshError } from '../core/errors.js'
import { credentialsOf, onlyAuthorization } from '../identity/bearer.js'
import type { ShownCertificate } from '../identity/certificates.js'
import type { Identity } from '../identity/identity.js'
import type { Principal } from '../identity/principal.js'
import { clientCertificates } from './client-certificates.js'
import { Failures } from './failures.js'
import type { Rates } from './rate.js'

type Role = Principal['role']

declare module 'fastify' {
  interface FastifyInstance {
    identity: Identity
    rates: Rates
    /** The certificate that a connection was opened with; undefined where there was none, or none is asked for. */
    certificateOf (socket: Socket): ShownCertificate | undefined
    /** A hook that lets only these roles on; anybody else gets 401 or 403 before the route runs. */
    only (...roles: Role[]): onRequestHookHandler
  }
  interface FastifyRequest {
    principal: Principal | null
  }
}

/** The principal of a request whose route lets only known ones on. */
export function principalOf (request: FastifyRequest): Principal {
  if (!request.principal) throw new Error('a route without an `only` hook asked who is there')
  return request.principal
}

const list = new Intl.ListFormat('en', { type: 'disjunction' })

export default fp(async (app: FastifyInstance, { identity, rates }: { identity: Identity, rates: Rates }) => {
  app.decorate('rates', rates)
  app.decorate('identity', identity)
  app.decorateRequest('principal', null)
  const { certificates } = identity
  const certificateOf = certificates && app.server instanceof TlsServer ? clientCertificates(app.server, certificates) : () => undefined
  app.decorate('certificateOf', certificateOf)
  const failures = new Failures()

  /** What a bad credential is answered with: a 401, or from an address that sends too many of them word to wait. */
  const refuse = (error: unknown, sent: boolean, { raw: { socket } }: FastifyRequest, reply: FastifyReply): unknown => {
    if (!sent || !(error instanceof MeshError) || error.problem !== 'unauthenticated') return error
    const waitS = failures.count(socket.remoteAddress)
    if (waitS === undefined) return error
    reply.header('connection', 'close')
    return new MeshError('too-many-requests', 'too many bad credentials came from this address: send a valid one, which always passes, or wait', {
      retryAfterS: waitS
    })
  }

  /** Lets a known principal on, or says why not. */
  const admit = (request: FastifyRequest, principal: Principal, roles: Role[]): MeshError | undefined => {
    request.principal = principal
    const waitS = rates.take(principal)
    if (waitS !== undefined) {
      return new MeshError('too-many-requests', `more than ${app.config.RATE_LIMIT} requests a second: ask less often`, { retryAfterS: waitS })
    }
    if (roles.includes(principal.role)) return undefined
    const whose = `${principal.role === 'operator' ? 'an' : 'a'} ${principal.role}`
    return new MeshError('forbidden', `this is for ${list.format(roles.map((role) => `${role}s`))}, and the credential is of ${whose}`)
  }

  // A client shows the same token with each request of a connection: what it proved then is known by one comparison of strings.
  const shown = new WeakMap<object, { header: string, principal: Principal }>()

  app.decorate('only', (...roles: Role[]): onRequestHookHandler => (request, reply, done) => {
    const { rawHeaders, socket } = request.raw
    const header = onlyAuthorization(rawHeaders)
    const before = header === undefined ? undefined : shown.get(socket)
    if (before && before.header === header && identity.stands(before.principal)) return done(admit(request, before.principal, roles))
    const proved = (principal: Principal): void => {
      if (header !== undefined) shown.set(socket, { header, principal })
      done(admit(request, principal, roles))
    }
    const credentials = credentialsOf(rawHeaders, { websocket: request.upgrade === 'websocket' })
    credentials.certificate = certificateOf(socket)
    // Known from a request before: no turn of the event loop goes by, and no signature is checked again.
    const known = identity.cached(credentials)
    if (known) return proved(known)
    const sent = credentials.malformed || credentials.tokens.length > 0 || credentials.certificate !== undefined
    identity.principalOf(credentials).then(proved, (error: unknown) => done(refuse(error, sent, request, reply) as Error))
  })
}, { name: 'auth' })
