/** The one connection of a process to the bus: reached for ever, never given up (DESIGN section 9). */
import type { Socket } from 'node:net'
import { connect, Events, type ConnectionOptions, type NatsConnection } from 'nats'
import { natsServers, type Environment } from '../config.js'
import { limits } from '../core/limits.js'
import { busUser, inboxPrefix, type BusUser } from './user.js'

/** What a log of a process must be able to take; pino's and Fastify's loggers do. */
export interface Log {
  debug (details: object, message: string): void
  info (details: object, message: string): void
  warn (details: object, message: string): void
  error (details: object, message: string): void
}

/**
 * Connection options from the environment. Credentials and the authority's certificate are read again at each attempt, so that they
 * can be exchanged. Throws a ConfigError where a file of credentials holds none.
 */
export function busOptions (config: Environment, name: string, user: BusUser = busUser(config)): ConnectionOptions {
  const servers = natsServers(config)
  const { NATS_CA: caFile } = config
  return {
    servers,
    name,
    maxReconnectAttempts: -1,
    ignoreAuthErrorAbort: true,
    reconnectTimeWait: limits.reconnectMs,
    reconnectJitter: limits.reconnectJitterMs,
    reconnectJitterTLS: limits.reconnectJitterMs,
    timeout: limits.connectMs,
    pingInterval: limits.busPingMs,
    maxPingOut: limits.busPings,
    inboxPrefix: inboxPrefix(user.key),
    ...(user.authenticator ? { authenticator: user.authenticator } : {}),
    // The library does not look at `tls://`, and without these options would go on in clear with whoever says that he has no TLS.
    ...(caFile !== undefined || servers.some((one) => one.startsWith('tls://')) ? { tls: caFile === undefined ? {} : { caFile } } : {})
  }
}

/**
 * A connection, however long the bus takes to be there. A refused one is tried again, and said once. It closes where its credentials
 * have become another user's: its inboxes are the old one's, and on them the new one hears nothing. Whoever holds it connects anew then.
 */
export async function connectBus (
  config: Environment, name: string, { log, signal }: { log?: Log, signal?: AbortSignal } = {}
): Promise<NatsConnection> {
  let said = ''
  for (;;) {
    try {
      const user = busUser(config)
      const nc = hearSocketErrors(await connect(busOptions(config, name, user)))
      if (user.shown() === user.key) {
        void closeForAnotherUser(nc, user, log)
        return nc
      }
      await nc.close()
    } catch (error) {
      const why = (error as Error).message
      if (why !== said) log?.warn({ why }, 'the bus does not take the connection; trying on')
      said = why
      await new Promise((resolve) => setTimeout(resolve, limits.reconnectMs + limits.reconnectJitterMs * Math.random()))
      signal?.throwIfAborted()
    }
  }
}

async function closeForAnotherUser (nc: NatsConnection, user: BusUser, log: Log | undefined): Promise<void> {
  for await (const { type } of nc.status()) {
    if (type !== Events.Reconnect || user.shown() === user.key) continue
    log?.info({}, 'the credentials for the bus are another user\'s: connecting anew')
    return nc.close()
  }
}

/**
 * The client library takes its listeners off a socket that it closes, though a last write may still fail: nobody would hear that
 * error, and it would end the process. Here somebody hears it, after each reconnect as well.
 */
export function hearSocketErrors (nc: NatsConnection): NatsConnection {
  const guard = (): void => {
    const { socket } = (nc as unknown as { protocol?: { transport?: { socket?: Socket } } }).protocol?.transport ?? {}
    if (!socket) return
    const removeAll = socket.removeAllListeners.bind(socket)
    socket.removeAllListeners = (event) => {
      removeAll(event)
      return socket.on('error', () => undefined)
    }
  }
  guard()
  void (async () => { for await (const { type } of nc.status()) if (type === Events.Reconnect) guard() })()
  return nc
}
