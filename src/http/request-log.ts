/** One line a request: who, what, how it ended, how long. No URL (a key may stand in it), no token, no value. */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'

export default fp(async (app: FastifyInstance) => {
  // Made once for each request, a line that nobody reads would cost as much as the rest of it.
  const { isLevelEnabled } = app.log as { isLevelEnabled?: (level: string) => boolean }
  if (isLevelEnabled && !isLevelEnabled.call(app.log, 'info')) return
  app.addHook('onResponse', (request, reply, done) => {
    done()
    // An upgraded connection has no response of its own: it is logged when it closes.
    if (reply.raw.statusCode === 101) return
    const { method, principal, problem, routeOptions: { url: route } } = request
    request.log.info({
      method,
      route,
      status: reply.statusCode,
      ...(problem ? { problem } : {}),
      ...(principal ? { role: principal.role, [principal.role === 'module' ? 'module' : 'who']: principal.name } : {}),
      ms: Math.round(reply.elapsedTime * 10) / 10
    }, 'request')
  })
}, { name: 'request-log' })
