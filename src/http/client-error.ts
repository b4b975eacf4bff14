/** Bytes that are no HTTP never reach a route; they are answered here, in the one form that errors have. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { MeshError } from '../core/errors.js'
import { due, type Answering } from './due.js'
import { problemOf } from './problem.js'

const invalid = (why: string): Buffer => Buffer.from(JSON.stringify(problemOf(new MeshError('invalid', why))))

/** An `Expect` other than 100-continue reaches no route either. */
export function answerExpectation (_request: IncomingMessage, response: ServerResponse): void {
  const problem = invalid('Expect holds something other than 100-continue: leave it out')
  response.writeHead(400, {
    'content-type': 'application/problem+json; charset=utf-8', 'cache-control': 'no-store', 'content-length': problem.length, connection: 'close'
  }).end(problem)
}

/** Connections that are told already: more bytes that are no HTTP come here again. */
const told = new WeakSet<Answering>()

export function answerClientError (this: FastifyInstance, error: NodeJS.ErrnoException, socket: Answering): void {
  // A handshake that failed comes here, too; there is nothing yet that an answer could be written to.
  const shaken = !(socket instanceof TLSSocket) || /^(HPE|ERR_HTTP)_/.test(error.code ?? '')
  if (!shaken || error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) {
    socket.destroy()
    return
  }
  if (told.has(socket)) return
  told.add(socket)
  const why = error.code === 'HPE_HEADER_OVERFLOW'
    ? 'the headers are larger than 16 KiB'
    : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 'the request did not come whole in time' : 'this is no HTTP/1.1 request'
  const problem = invalid(why)
  const head = ['HTTP/1.1 400 Bad Request', 'Content-Type: application/problem+json; charset=utf-8', 'Cache-Control: no-store',
    `Content-Length: ${problem.length}`, 'Connection: close', '', '']
  sayInTurn(socket, Buffer.concat([Buffer.from(head.join('\r\n')), problem]))
}

/** The last answer of a connection, behind those to what was whole before: it must not be read as one of theirs, or as a part of it. */
function sayInTurn (socket: Answering, answer: Buffer): void {
  const owed = due(socket)
  // An event stream has no end to wait for, and an answer that began while its request still came leaves no room for another.
  if (owed?.headersSent && !(owed.req.complete && owed.writableEnded)) socket.destroySoon()
  else if (owed?.req.complete) owed.once('close', () => { if (!socket.destroyed) sayInTurn(socket, answer) })
  else socket.end(answer)
}
