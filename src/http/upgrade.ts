/**
 * What becomes of a request with an `Upgrade` header. Node hands every one of them to the `upgrade` event once a listener
 * exists, whatever the protocol; a plain client that offers `h2c` (Java's does by default) must still get its answer
 * (DESIGN section 6).
 */
import { EventEmitter } from 'node:events'
import { ServerResponse, type IncomingMessage, type Server } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { MeshError } from '../core/errors.js'

const isWebSocket = (req: IncomingMessage): boolean => (req.headers.upgrade ?? '').split(',').some((of) => of.trim().toLowerCase() === 'websocket')
const hasBody = ({ headers }: IncomingMessage): boolean => headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0

declare module 'fastify' {
  interface FastifyInstance {
    /** Where websocket upgrades arrive, and nothing else: what the websocket plugin listens to instead of the server. */
    upgrades: Server
  }
  interface FastifyContextConfig {
    /** The route is a websocket's: a plain request to it is 426. */
    websocketOnly?: boolean
  }
  interface FastifyRequest {
    upgrade: 'none' | 'websocket' | 'ignored'
  }
}

export default fp(async (app: FastifyInstance) => {
  const upgrades = new EventEmitter() as Server
  const ignored = new WeakSet<IncomingMessage>()
  app.decorate('upgrades', upgrades)
  app.decorateRequest('upgrade', 'none')

  app.server.on('upgrade', (req: IncomingMessage, socket: Socket, head: Buffer) => {
    if (isWebSocket(req)) return upgrades.emit('upgrade', req, socket, head)
    ignored.add(req)
    socket.on('error', () => socket.destroy())
    const res = new ServerResponse(req)
    // Node has let go of the connection, so no second request can be read from it.
    res.shouldKeepAlive = false
    res.assignSocket(socket)
    res.on('finish', () => socket.end())
    app.server.emit('request', req, res)
  })

  app.addHook('onRequest', async (request) => {
    const { raw } = request
    if (raw.headers.upgrade === undefined) return
    request.upgrade = ignored.has(raw) ? 'ignored' : isWebSocket(raw) ? 'websocket' : 'none'
    if (request.upgrade === 'ignored' && hasBody(raw)) {
      throw new MeshError('invalid', 'a request with a body cannot be upgraded: send it as plain HTTP/1.1, without an Upgrade header')
    }
    // The route's own rules come first (who may call it); a path that is none is a plain 404.
    if (request.upgrade === 'websocket' && !request.is404 && !request.routeOptions.config.websocketOnly) {
      throw new MeshError('upgrade-required', 'only /watch can be upgraded to a websocket')
    }
  })

  // A refused upgrade was answered on a socket that nobody reads any more.
  app.addHook('onResponse', async (request) => {
    if (request.upgrade === 'websocket') request.raw.socket.destroy()
  })
}, { name: 'upgrade' })
