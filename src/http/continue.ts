/** `Expect: 100-continue`: the interim answer, in its place among the answers of a connection. */
import type { Server } from 'node:http'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'

/**
 * Node says `100 Continue` as soon as it reads such a request. Behind another request on the same connection it would come out
 * between the head and the body of its own answer, where that one is known already, and everything after it would be read
 * wrongly. So it waits for its turn, and is left out where the answer itself is there by then: the body has been read, or is not wanted.
 */
export default fp(async (app: FastifyInstance) => {
  const server = app.server as Server
  server.on('checkContinue', (request, response) => {
    if (response.socket) response.writeContinue()
    else response.once('socket', () => { if (!response.headersSent) response.writeContinue() })
    server.emit('request', request, response)
  })
}, { name: 'continue' })
