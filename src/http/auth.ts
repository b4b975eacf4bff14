/** Who is asking, before anything else runs (DESIGN section 8). */
import type { FastifyInstance, FastifyRequest, onRequestHookHandler } from 'fastify'
import fp from 'fastify-plugin'
import { MeshError } from '../core/errors.js'
import { credentialsOf, onlyAuthorization } from '../identity/bearer.js'
import type { Identity } from '../identity/identity.js'
import type { Principal } from '../identity/principal.js'
import type { Rates } from './rate.js'

type Role = Principal['role']

declare module 'fastify' {
  interface FastifyInstance {
    identity: Identity
    rates: Rates
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

  app.decorate('only', (...roles: Role[]): onRequestHookHandler => (request, _reply, done) => {
    const { rawHeaders, socket } = request.raw
    const header = onlyAuthorization(rawHeaders)
    const before = header === undefined ? undefined : shown.get(socket)
    if (before && before.header === header && identity.stands(before.principal)) return done(admit(request, before.principal, roles))
    const proved = (principal: Principal): void => {
      if (header !== undefined) shown.set(socket, { header, principal })
      done(admit(request, principal, roles))
    }
    const credentials = credentialsOf(rawHeaders, { websocket: request.upgrade === 'websocket' })
    // Known from a request before: no turn of the event loop goes by, and no signature is checked again.
    const known = identity.cached(credentials)
    if (known) return proved(known)
    identity.principalOf(credentials).then(proved, done)
  })
}, { name: 'auth' })
