/** A plain client of the bus, for whatever stands beside the gateway in a test. */
import { connect, type NatsConnection, type ConnectionOptions } from 'nats'
import { limits } from '../../../src/core/limits.js'
import { hearSocketErrors } from '../../../src/nats/connection.js'
import { parsed } from '../wire/bytes.js'
import { atEnd, type Owner } from '../owner.js'

const encoder = new TextEncoder()
const decoder = new TextDecoder()

export const encode = (text: string): Uint8Array => encoder.encode(text)
export const decode = (bytes: Uint8Array): string => decoder.decode(bytes)
/** A payload as JSON; undefined where it is none. */
export const decodeJson = (bytes: Uint8Array): ReturnType<typeof parsed> => parsed(decode(bytes))

/**
 * Connects, and stays connected through whatever happens to the server, until the test ends. A server that is killed while it greets would
 * be waited for 20 s by default.
 */
export async function client (t: Owner, url: string, options: ConnectionOptions = {}): Promise<NatsConnection> {
  const staying = { maxReconnectAttempts: -1, reconnectTimeWait: 50, reconnectJitter: 20, timeout: limits.connectMs }
  const nc = hearSocketErrors(await connect({ servers: url, ...staying, ...options }))
  atEnd(t, () => nc.close())
  return nc
}
