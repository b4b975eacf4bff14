/** The WebSocket on which a module watches its values (DESIGN section 7). */
import websocket from '@fastify/websocket'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyRequest } from 'fastify'
import type { WebSocket } from 'ws'
import { MeshError } from '../src/core/errors.js'
import { principalOf } from '../src/http/auth.js'
import { hasBody } from '../src/http/upgrade.js'
import { WatchSession } from '../src/http/watch-session.js'
import { tokenAlone } from '../src/identity/bearer.js'
import { unauthenticated } from '../src/identity/principal.js'
import { problemResponses } from '../src/schemas/problem.js'
import { proofs } from '../src/schemas/proofs.js'

const protocol = 'mesh.provision.v1'
// A word of HTTP (RFC 9110, section 5.6.2).
const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** Throws where the handshake is none of ours, so that it is answered in the form that errors have. */
function checkHandshake ({ headers, raw }: FastifyRequest): void {
  if (hasBody(raw)) throw new MeshError('invalid', 'a websocket upgrade has no body: its bytes would be read as frames')
  if (headers['sec-websocket-version'] !== '13') {
    throw new MeshError('upgrade-required', 'the websocket must be of version 13: say so in Sec-WebSocket-Version')
  }
  if (!/^[+/0-9A-Za-z]{22}==$/.test(headers['sec-websocket-key'] ?? '')) throw new MeshError('invalid', 'Sec-WebSocket-Key is not 16 bytes in base64')
  if (headers.upgrade?.toLowerCase() !== 'websocket') throw new MeshError('invalid', 'Upgrade names more than websocket: name it alone')
  const offered = headers['sec-websocket-protocol']?.split(',').map((one) => one.trim())
  if (offered === undefined) return
  if (!offered.includes(protocol)) throw new MeshError('invalid', `the subprotocols offered do not have ${protocol}: offer it, or none`)
  if (!offered.every((one) => token.test(one)) || new Set(offered).size < offered.length) {
    throw new MeshError('invalid', 'Sec-WebSocket-Protocol is no list of different words: offer each once')
  }
}

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { config, core, sessions, identity } = app
  // In a context of its own: the plugin's hooks would run on every request otherwise, which costs a third of a GET.
  await app.register(websocket, {
    options: {
      server: app.upgrades,
      maxPayload: config.MAX_FRAME_BYTES,
      perMessageDeflate: false,
      clientTracking: false,
      // The first offered could be the bearer, which must not be said back.
      handleProtocols: (offered: Set<string>) => offered.has(protocol) ? protocol : false
    },
    // A broken frame: ws has answered with the close code that fits.
    errorHandler: (error, socket, request) => {
      request.log.debug({ why: error.message }, 'a websocket failed')
      if (socket.readyState === socket.OPEN) socket.close(1011)
    },
    preClose: (done) => done()
  })

  app.route({
    method: 'GET',
    url: '/watch',
    config: { websocketOnly: true },
    exposeHeadRoute: false,
    schema: {
      operationId: 'watch',
      summary: 'The WebSocket on which a module watches its values',
      description: 'JSON-RPC 2.0 in text frames, subprotocol mesh.provision.v1: see docs/watch.md.',
      tags: ['provision'],
      security: proofs,
      response: {
        101: { type: 'null', description: 'the connection is a WebSocket from here on' },
        ...problemResponses('origin', 'upgrade-required', 'unavailable')
      }
    },
    onRequest: [
      app.only('module'),
      async (request) => {
        if (request.upgrade !== 'websocket') throw new MeshError('upgrade-required', 'this is a WebSocket: upgrade the connection')
        const { origin } = request.headers
        if (origin !== undefined && !app.origins().has(origin)) {
          throw new MeshError('origin', 'pages of this origin may not connect: its operator can name it in CORS_ORIGINS')
        }
        checkHandshake(request)
        const { name, expiresAt } = principalOf(request)
        if (expiresAt <= Date.now()) throw unauthenticated('expired, within the leeway that a request has and a connection has not')
        const { socket } = request.raw
        // Gone while its token was verified: nobody would tell us again that it is.
        if (socket.destroyed) throw new MeshError('invalid', 'the connection is closed')
        sessions.enter(name)
        socket.once('close', () => sessions.leave(name))
      }
    ],
    handler: async () => { throw new MeshError('upgrade-required', 'this is a WebSocket: upgrade the connection') },
    wsHandler: (socket, request) => open(socket, request)
  })

  /** Everything is attached before anything is waited for: a frame may have come with the handshake. */
  function open (socket: WebSocket, request: FastifyRequest): void {
    const { log } = request
    const { socket: transport } = request.raw
    const principal = principalOf(request)
    forgetRequest(socket, transport, (error) => log.debug({ why: error.message }, 'a websocket failed'))
    const began = Date.now()
    const session = new WatchSession(socket, {
      view: core.view,
      transport,
      principal,
      maxWatches: config.MAX_WATCHES,
      places: sessions.watches,
      maxFrameBytes: config.MAX_FRAME_BYTES,
      principalOf: async (token) => identity.principalOf(tokenAlone(token, app.certificateOf(transport))),
      mayCall: (principal) => app.rates.take(principal) === undefined,
      failed: (error) => log.error({ err: error }, 'a call on the watch failed')
    })
    sessions.add(session)
    transport.on('drain', () => session.drained())
    socket.on('close', (code) => {
      log.info({ route: '/watch', module: principal.name, code: session.closedWith ?? code, ms: Date.now() - began }, 'watch closed')
    })
  }
}

/**
 * A connection lives long after the request that opened it. What holds that request (its headers, the token among them) is let go: the
 * response on the socket, and the plugin's listener. A third of an idle connection's memory is that.
 */
function forgetRequest (socket: WebSocket, transport: Socket, failed: (error: Error) => void): void {
  (transport as Socket & { _httpMessage?: ServerResponse | null })._httpMessage?.detachSocket(transport)
  socket.removeAllListeners('error')
  // A broken frame: ws has answered with the close code that fits, and ends the connection.
  socket.on('error', failed)
}

export default routes
