/**
 * What becomes of a request with an `Upgrade` header. Node hands every one of them to the `upgrade` event once a listener
 * exists, whatever the protocol; a plain client that offers `h2c` (Java's does by default) must still get its answer
 * (DESIGN section 6).
 */
import { EventEmitter } from 'node:events'
import { ServerResponse, type IncomingMessage, type Server } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { MeshError } from '../core/errors.js'

const isWebSocket = (req: IncomingMessage): boolean => (req.headers.upgrade ?? '').split(',').some((of) => of.trim().toLowerCase() === 'websocket')
const hasBody = ({ headers }: IncomingMessage): boolean => headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0

/** A connection, with the response that is being written to it, as Node keeps it. */
type Answering = Socket & { _httpMessage?: ServerResponse | null }

/**
 * Node hands a connection over although answers to what was asked on it before may still be due, and a second response on it throws:
 * in a listener that would end the process. So the upgrade waits until they are written; where its client ends the connection first, for nothing.
 */
function afterEarlier (socket: Answering, go: () => void): void {
  const earlier = socket._httpMessage
  if (earlier) earlier.once('close', () => afterEarlier(socket, go))
  else if (socket.readableEnded) socket.destroySoon()
  else if (!socket.destroyed) go()
}

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
  // A header alone is no upgrade: without `Connection: Upgrade` Node hands the request on as any other, and so it is answered.
  const arrived = new WeakMap<IncomingMessage, FastifyRequest['upgrade']>()
  app.decorate('upgrades', upgrades)
  app.decorateRequest('upgrade', 'none')

  app.server.on('upgrade', (req: IncomingMessage, socket: Answering, head: Buffer) => {
    const kind = isWebSocket(req) ? 'websocket' : 'ignored'
    arrived.set(req, kind)
    const failed = (): void => { socket.destroy() }
    socket.on('error', failed)
    afterEarlier(socket, () => {
      if (kind === 'websocket') {
        socket.off('error', failed)
        upgrades.emit('upgrade', req, socket, head)
        // A refused upgrade is answered on a socket that nobody reads any more, by whatever hook refuses it: it is ended here, or never.
        socket._httpMessage?.once('finish', () => socket.destroySoon())
        return
      }
      const res = new ServerResponse(req)
      // Node has let go of the connection: no second request can be read from it, and a client that does not end its side
      // would hold the server's close.
      res.shouldKeepAlive = false
      res.assignSocket(socket)
      res.on('finish', () => socket.destroySoon())
      // Nor does anybody see that its client has gone, who may have left an event stream behind, unless what still comes is read.
      socket.on('end', () => socket.end()).resume()
      app.server.emit('request', req, res)
    })
  })

  app.addHook('onRequest', (request, _reply, done) => {
    const kind = arrived.get(request.raw)
    if (kind === undefined) return done()
    request.upgrade = kind
    if (kind === 'ignored') {
      return done(hasBody(request.raw)
        ? new MeshError('invalid', 'a request with a body cannot be upgraded: send it as plain HTTP/1.1, without an Upgrade header')
        : undefined)
    }
    // The route's own rules come first (who may call it); a path that is none is a plain 404.
    done(request.is404 || request.routeOptions.config.websocketOnly
      ? undefined
      : new MeshError('upgrade-required', 'only /watch can be upgraded to a websocket'))
  })
}, { name: 'upgrade' })
