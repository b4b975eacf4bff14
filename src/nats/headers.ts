import type { Msg, MsgHdrs } from 'nats'

/**
 * A message's headers; undefined where it has none, and where they are none. The client library reads them when they are asked for, and
 * throws then: in a subscription's callback that would cost the connection to the bus, with everything that is on it.
 */
export function headersOf (msg: Msg): MsgHdrs | undefined {
  try { return msg.headers } catch { return undefined }
}
