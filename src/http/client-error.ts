/** Bytes that are no HTTP never reach a route; they are answered here, in the one form that errors have. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { MeshError } from '../core/errors.js'
import { problemOf } from './problem.js'

const invalid = (why: string): Buffer => Buffer.from(JSON.stringify(problemOf(new MeshError('invalid', why))))

/** An `Expect` other than 100-continue reaches no route either. */
export function answerExpectation (_request: IncomingMessage, response: ServerResponse): void {
  const problem = invalid('Expect holds something other than 100-continue: leave it out')
  response.writeHead(400, {
    'content-type': 'application/problem+json; charset=utf-8', 'cache-control': 'no-store', 'content-length': problem.length, connection: 'close'
  }).end(problem)
}

export function answerClientError (this: FastifyInstance, error: NodeJS.ErrnoException, socket: Socket): void {
  // A handshake that failed comes here, too; there is nothing yet that an answer could be written to.
  const shaken = !(socket instanceof TLSSocket) || /^(HPE|ERR_HTTP)_/.test(error.code ?? '')
  if (!shaken || error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) {
    socket.destroy()
    return
  }
  const why = error.code === 'HPE_HEADER_OVERFLOW'
    ? 'the headers are larger than 16 KiB'
    : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'the request did not come whole in time' : 'this is no HTTP/1.1 request'
  const problem = invalid(why)
  const head = ['HTTP/1.1 400 Bad Request', 'Content-Type: application/problem+json; charset=utf-8', 'Cache-Control: no-store',
    `Content-Length: ${problem.length}`, 'Connection: close', '', '']
  socket.end(Buffer.concat([Buffer.from(head.join('\r\n')), problem]))
}
