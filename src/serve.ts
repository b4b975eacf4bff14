/** Joins configuration, bus and core into a gateway that listens, and can be drained. */
import type { FastifyInstance } from 'fastify'
import { buildApp, buildOperations } from './app.js'
import { requireVariables, type Environment } from './config.js'
import { messageOf } from './core/errors.js'
import { drain } from './drain.js'
import { openTls } from './http/tls.js'
import { createIdentity } from './identity/identity.js'
import { createLog } from './log.js'
import { Mesh } from './nats/mesh.js'

/** Thrown where the address cannot be listened on; its message is one line for the user. */
export class ListenError extends Error {
  override readonly name = 'ListenError'
}

export interface Gateway {
  /** Tells clients to come back elsewhere, lets running take-ins end, answers what was asked, and closes everything. */
  drain (): Promise<void>
}

/**
 * Starts a gateway. It listens whether the bus is there or not (DESIGN section 9). Rejects with a ConfigError for a variable that
 * does not fit, or a ListenError.
 */
export async function serve (config: Environment): Promise<Gateway> {
  requireVariables(config, ['NATS_URL', 'MESH_NODE', 'AUTH_JWKS'])
  const log = createLog({ level: config.LOG_LEVEL })
  const tls = openTls(config, {
    trouble: (why) => log.warn({ why }, 'files of TLS could not be taken anew, and stay as they were'),
    taken: (what) => log.info({ what }, 'files of TLS were taken anew')
  })
  const identity = await createIdentity(config, {
    trouble: (why) => log.warn({ why }, 'the keys that sign credentials could not be read again'),
    anchors: tls?.anchors
  })
  const mesh = new Mesh(config, log)
  const app = await buildApp({ core: mesh, config, identity, tls, logger: log })
  const operations = config.OPS_PORT === undefined ? undefined : await buildOperations({ core: mesh, logger: log })
  try {
    await listen(app, config.HOST, config.PORT, 'PORT')
    if (operations) await listen(operations, config.HOST, config.OPS_PORT as number, 'OPS_PORT')
  } catch (error) {
    await Promise.all([app.close(), operations?.close()])
    throw error
  }
  mesh.start()

  return {
    async drain () {
      log.info({}, 'draining')
      await drain({ app, operations, mesh }, config.DRAIN_MS)
      log.info({}, 'ended')
    }
  }
}

async function listen (app: FastifyInstance, host: string, port: number, variable: string): Promise<void> {
  try {
    await app.listen({ host, port })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const why = code === 'EADDRINUSE' ? `is in use: end what listens there, or set ${variable} to another` : `cannot be listened on: ${messageOf(error)}`
    throw new ListenError(`port ${port} on ${host} ${why}`)
  }
}
