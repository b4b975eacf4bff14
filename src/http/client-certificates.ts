/** The certificate that a client opened its connection with, judged once when the connection stands. */
import type { Socket } from 'node:net'
import type { Server, TLSSocket } from 'node:tls'
import type { Certificates, ShownCertificate } from '../identity/certificates.js'

/** Listens at a server for certificates; returns what the client of a connection showed, undefined where that was none. */
export function clientCertificates (server: Server, certificates: Certificates): (socket: Socket) => ShownCertificate | undefined {
  const shown = new WeakMap<object, ShownCertificate>()
  // Before the first request of the connection: a resumed session depends on the handshake before it having been seen.
  server.on('secureConnection', (socket: TLSSocket) => {
    const certificate = socket.getPeerX509Certificate()
    if (certificate) shown.set(socket, certificates.judge(certificate, socket.authorized))
  })
  return (socket) => shown.get(socket)
}
