/**
 * What a server's close would wait for without end: it ends the connections that are idle after a request, but not one on which
 * no request came (browsers open them in advance), nor one whose request stays half sent.
 */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { Server as TlsServer } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'

export default fp(async (app: FastifyInstance, { closeWithinMs }: { closeWithinMs: number }) => {
  const silent = new Set<Socket>()
  // Of TLS, connections whose handshake is not through, by the client's address and port: both of its sockets have them.
  const unshaken = new Map<string, Socket>()
  const { server } = app
  const from = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`
  const opened = (socket: Socket): void => {
    silent.add(socket)
    socket.once('close', () => silent.delete(socket))
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
  const spoke = ({ socket }: IncomingMessage): void => { silent.delete(socket) }
  server.on('request', spoke).on('upgrade', spoke)

  let last: NodeJS.Timeout | undefined
  app.addHook('preClose', async () => {
    for (const socket of [...silent, ...unshaken.values()]) socket.destroy()
    // What is being answered has its time; a body that never comes has not.
    last = setTimeout(() => server.closeAllConnections(), closeWithinMs)
  })
  app.addHook('onClose', async () => clearTimeout(last))
}, { name: 'connections' })
