/** Bytes that are no HTTP never reach a route; they are answered here, in the one form that errors have. */
import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { MeshError } from '../core/errors.js'
import { problemOf } from './problem.js'

export function answerClientError (this: FastifyInstance, error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) {
    socket.destroy()
    return
  }
  const why = error.code === 'HPE_HEADER_OVERFLOW'
    ? 'the headers are larger than 16 KiB'
    : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'the request did not come whole in time' : 'this is no HTTP/1.1 request'
  const problem = Buffer.from(JSON.stringify(problemOf(new MeshError('invalid', why))))
  const head = ['HTTP/1.1 400 Bad Request', 'Content-Type: application/problem+json; charset=utf-8', 'Cache-Control: no-store',
    `Content-Length: ${problem.length}`, 'Connection: close', '', '']
  socket.end(Buffer.concat([Buffer.from(head.join('\r\n')), problem]))
}
