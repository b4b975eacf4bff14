/**
 * What becomes of a request with an `Upgrade` header. Node hands every one of them to the `upgrade` event once a listener
 * exists, whatever the protocol; a plain client that offers `h2c` (Java's does by default) must still get its answer
 * (DESIGN section 6).
 */
import { EventEmitter } from 'node:events'
import { ServerResponse, type IncomingMessage, type Server } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { MeshError } from '../core/errors.js'
import { due, inTurn, type Answering } from './due.js'

const isWebSocket = (req: IncomingMessage): boolean => (req.headers.upgrade ?? '').split(',').some((of) => of.trim().toLowerCase() === 'websocket')

/** Whether a request has a body; with an upgrade Node does not read it, and hands it on as the connection's next bytes. */
export const hasBody = ({ headers }: IncomingMessage): boolean => headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0

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
    if (due(socket)) {
      // Node hands a connection over although what was asked on it before is not answered yet. A second response on it would throw, and
      // end the process; so the upgrade is left unanswered, as HTTP allows for what is sent before an answer came, and asked again.
      socket.on('error', () => socket.destroy())
      return inTurn(socket, () => socket.destroySoon())
    }
    if (kind === 'websocket') {
      upgrades.emit('upgrade', req, socket, head)
      // A refused upgrade is answered on a socket that nobody reads any more, by whatever hook refuses it: it is ended here, or never.
      due(socket)?.once('finish', () => socket.destroySoon())
      return
    }
    socket.on('error', () => socket.destroy())
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
