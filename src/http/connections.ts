/**
 * How the connections of a server end. A server's own close waits without end for one on which no request came (browsers open them in
 * advance) and for one whose request stays half sent, and it cuts an answer that was made but is not all sent yet.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Server as TlsServer } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { inTurn } from './due.js'

/** No request came yet; requests are answered on it; it was upgraded, and who took it sees to its end. */
type State = 'silent' | 'talking' | 'upgraded'

declare module 'fastify' {
  interface FastifyInstance {
    /** From now on each answer is its connection's last. What is still open `withinMs` later is cut, as soon as the server closes. */
    endConnections (withinMs: number): void
  }
}

export default fp(async (app: FastifyInstance, { closeWithinMs }: { closeWithinMs: number }) => {
  const open = new Map<Socket, State>()
  // Of TLS, connections whose handshake is not through, by the client's address and port: both of its sockets have them.
  const unshaken = new Map<string, Socket>()
  const { server } = app
  let cutAt: number | undefined
  const from = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`
  const opened = (socket: Socket): void => {
    open.set(socket, 'silent')
    socket.once('close', () => open.delete(socket))
  }
  if (server instanceof TlsServer) {
    server.on('connection', (socket: Socket) => {
      const client = from(socket)
      unshaken.set(client, socket)
      socket.once('close', () => unshaken.delete(client))
    })
    server.on('secureConnection', (socket: Socket) => {
      unshaken.delete(from(socket))
      opened(socket)
    })
  } else server.on('connection', opened)
  // Before the request is handled: it can be answered in the same turn, and then it is too late to say that the connection ends.
  server.prependListener('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    if (open.get(socket) === 'silent') open.set(socket, 'talking')
    if (cutAt !== undefined) response.shouldKeepAlive = false
  })
  server.prependListener('upgrade', ({ socket }: IncomingMessage) => { if (open.has(socket)) open.set(socket, 'upgraded') })

  // Node's own, which its close calls, takes an answer that was handed to the socket for one that the client has.
  server.closeIdleConnections = () => {
    for (const [socket, state] of open) if (state === 'talking') inTurn(socket, () => socket.destroySoon())
  }

  app.decorate('endConnections', (withinMs: number) => { cutAt = Date.now() + withinMs })

  let last: NodeJS.Timeout | undefined
  app.addHook('preClose', async () => {
    for (const socket of unshaken.values()) socket.destroy()
    for (const [socket, state] of open) if (state === 'silent') socket.destroy()
    cutAt ??= Date.now() + closeWithinMs
    // What is being answered has its time; a body that never comes has not.
    last = setTimeout(() => { for (const socket of open.keys()) socket.destroy() }, Math.max(0, cutAt - Date.now()))
  })
  app.addHook('onClose', async () => clearTimeout(last))
}, { name: 'connections' })
