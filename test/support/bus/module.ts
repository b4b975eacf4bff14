/** A module on the bus, with the credential that a take-in sealed for it. */
import { nkeyAuthenticator, type NatsConnection } from 'nats'
import { fromSeed } from 'nkeys.js'
import type { Owner } from '../owner.js'
import { eventually } from '../until.js'
import { client, encode } from './client.js'

export interface ModuleOnBus {
  nc: NatsConnection
  /** Of these subjects to publish and to subscribe to, those that the server refuses: `publish a`, `subscription b`. */
  refused (publish: string[], subscribe: string[]): Promise<string[]>
}

/** Connects with a user's seed and its own inbox prefix, as what launches a bundle does; rejects where the server knows no such user. */
export async function moduleOnBus (t: Owner, url: string, seed: string): Promise<ModuleOnBus> {
  const user = fromSeed(encode(seed)).getPublicKey()
  const nc = await client(t, url, { authenticator: nkeyAuthenticator(encode(seed)), inboxPrefix: `_INBOX.${user}`, reconnect: false })
  const heard: string[] = []
  void (async () => {
    for await (const { permissionContext } of nc.status()) {
      if (permissionContext) heard.push(`${permissionContext.operation} ${permissionContext.subject}`)
    }
  })()
  return {
    nc,
    async refused (publish, subscribe) {
      heard.length = 0
      for (const subject of publish) nc.publish(subject, '')
      const subscriptions = subscribe.map((subject) => nc.subscribe(subject, { callback () {} }))
      // The server refuses in order, so what no user may do comes last.
      nc.publish('$SYS.last', '')
      await eventually('the last refusal', () => heard.includes('publish $SYS.last'))
      for (const subscription of subscriptions) subscription.unsubscribe()
      return heard.slice(0, -1)
    }
  }
}
