/** A stand-in for the broker agent beside a nats-server: says applied, an error, or nothing, as told. */
import { headers, type NatsConnection } from 'nats'
import { atEnd, type Owner } from '../owner.js'
import { pause } from '../until.js'
import { decodeJson, encode } from './client.js'

export interface StandInBroker {
  readonly asked: Array<{ revision: string, at: number }>
  /** `applied`, `silent`, or the reason of an error. */
  says: string
  /** ms until it is said. */
  delay: number
  stop (): void
}

/** Answers `mesh.broker.SERVER.applied`; resolves when the server knows. */
export async function broker (
  t: Owner, nc: NatsConnection, { server = 'node-a', says = 'applied', delay = 0 } = {}
): Promise<StandInBroker> {
  const subscription = nc.subscribe(`mesh.broker.${server}.applied`, {
    callback: (error, ask) => {
      if (error) return
      const answer = async () => {
        made.asked.push({ revision: decodeJson(ask.data)?.revision, at: Date.now() })
        if (made.delay > 0) await pause(made.delay)
        if (made.says === 'silent' || nc.isClosed()) return
        if (made.says === 'applied') {
          ask.respond(encode('{}'))
          return
        }
        const said = headers()
        said.set('Nats-Service-Error-Code', '500')
        said.set('Nats-Service-Error', made.says)
        ask.respond(new Uint8Array(0), { headers: said })
      }
      void answer()
    }
  })
  const made: StandInBroker = { asked: [], says, delay, stop: () => subscription.unsubscribe() }
  atEnd(t, () => made.stop())
  await nc.flush()
  return made
}
