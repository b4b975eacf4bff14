/** How the clients of this folder reach a port: plainly, or with TLS where the port is known to speak it. */
import { connect, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions } from 'node:tls'
import { HOST } from '../machine.js'

const secured = new Map<number, ConnectionOptions>()

/** From now on everything here speaks TLS to a port, with these options. */
export function isTls (port: number, options: ConnectionOptions): void { secured.set(port, options) }

/** A connection to a port of the loopback address; `more` goes over the port's own options. What is written before it stands waits. */
export function dial (port: number, more: ConnectionOptions = {}): Socket {
  const options = secured.get(port)
  return options ? connectTls({ ...options, ...more, port, host: HOST }) : connect(port, HOST)
}
