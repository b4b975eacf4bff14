import { createServer } from 'node:net'
import { ConfigError } from '../config.js'
import { messageOf } from '../core/errors.js'

/** Listens for a moment; answers the port, or rejects as `listen` does. */
const listenOnce = (host: string, port: number): Promise<number> => new Promise((resolve, reject) => {
  const server = createServer()
  server.once('error', reject)
  server.listen({ host, port, exclusive: true }, () => {
    const address = server.address()
    server.close(() => resolve(typeof address === 'object' && address ? address.port : port))
  })
})

/** A port of the loopback address that nobody listens on. */
export const freePort = (): Promise<number> => listenOnce('127.0.0.1', 0)

/** The port that a variable names, or a free one where it is 0. Throws ConfigError where something listens there already. */
export async function portOf (variable: string, host: string, port: number): Promise<number> {
  try {
    return await listenOnce(host, port)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const why = code === 'EADDRINUSE' ? 'but that port is in use: end what listens there, or set it to another' : `but ${host}:${port} cannot be listened on (${code ?? messageOf(error)})`
    throw new ConfigError(`${variable} is ${port}, ${why}`)
  }
}
