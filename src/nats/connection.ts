/** The one connection of a process to the bus: reached for ever, never given up (DESIGN section 9). */
import { readFile } from 'node:fs/promises'
import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { connect, credsAuthenticator, Events, nkeyAuthenticator, type ConnectionOptions, type NatsConnection } from 'nats'
import { natsServers, type Environment } from '../config.js'
import { limits } from '../core/limits.js'

/** What a log of a process must be able to take; pino's and Fastify's loggers do. */
export interface Log {
  debug (details: object, message: string): void
  info (details: object, message: string): void
  warn (details: object, message: string): void
  error (details: object, message: string): void
}

/** Connection options from the environment. Seeds and credentials are read again at each attempt, so that they can be rotated. */
export async function busOptions (config: Environment, name: string): Promise<ConnectionOptions> {
  const { NATS_CREDS: creds, NATS_NKEY_SEED_FILE: seed, NATS_CA: ca } = config
  return {
    servers: natsServers(config),
    name,
    maxReconnectAttempts: -1,
    ignoreAuthErrorAbort: true,
    reconnectTimeWait: limits.reconnectMs,
    reconnectJitter: limits.reconnectJitterMs,
    reconnectJitterTLS: limits.reconnectJitterMs,
    timeout: limits.connectMs,
    pingInterval: limits.busPingMs,
    maxPingOut: limits.busPings,
    ...(creds ? { authenticator: (nonce) => credsAuthenticator(readFileSync(creds))(nonce) } : {}),
    ...(seed ? { authenticator: nkeyAuthenticator(() => Buffer.from(readFileSync(seed, 'utf8').trim())) } : {}),
    ...(ca ? { tls: { ca: await readFile(ca, 'utf8') } } : {})
  }
}

/** A connection, however long the bus takes to be there. A refused one is tried again, and said once. */
export async function connectBus (
  config: Environment, name: string, { log, signal }: { log?: Log, signal?: AbortSignal } = {}
): Promise<NatsConnection> {
  let said = ''
  for (;;) {
    try {
      return hearSocketErrors(await connect(await busOptions(config, name)))
    } catch (error) {
      const why = (error as Error).message
      if (why !== said) log?.warn({ why }, 'the bus does not take the connection; trying on')
      said = why
      await new Promise((resolve) => setTimeout(resolve, limits.reconnectMs + limits.reconnectJitterMs * Math.random()))
      signal?.throwIfAborted()
    }
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
