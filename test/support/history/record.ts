/** Everything that the buckets ever took, as their streams tell it: in the order of each stream, with nothing left out. */
import { consumerOpts, type NatsConnection } from 'nats'
import { isMarker } from '../../../src/nats/buckets.js'
import type { BucketName } from '../../../src/core/ports.js'
import type { Mesh } from '../bus/buckets.js'
import { decode } from '../bus/client.js'
import { atEnd, type Owner } from '../owner.js'
import { eventually } from '../until.js'

export interface Took {
  bucket: BucketName
  key: string
  /** The stream's sequence: the key's revision. */
  revision: number
  /** Undefined for a marker. */
  text: string | undefined
  /** The server's time of the write, in ns: it orders what different streams took. */
  at: number
}

export interface Recording {
  /** Creation time of the compositions' bucket in ms: the epoch of the revisions that grants name. */
  readonly epoch: number
  /** All that the streams took, in the order in which they did, once all that they hold by now has been heard. */
  caughtUp (): Promise<Took[]>
}

const watched: BucketName[] = ['inventory', 'compositions', 'grants']

/**
 * Records from now on, and what stands now. It must begin before what it is to judge: a bucket keeps the last eight of a key only, and a
 * purge takes these away.
 */
export async function record (t: Owner, nc: NatsConnection, mesh: Mesh): Promise<Recording> {
  const took: Took[] = []
  const heard = new Map<BucketName, number>()
  const js = nc.jetstream()
  for (const bucket of watched) {
    const start = `$KV.${mesh.prefix}${bucket}.`
    const options = consumerOpts().orderedConsumer().deliverAll().bindStream(`KV_${mesh.prefix}${bucket}`)
    options.callback((error, message) => {
      if (error || !message) return
      heard.set(bucket, message.seq)
      const text = isMarker(message.headers) ? undefined : decode(message.data)
      took.push({ bucket, key: message.subject.slice(start.length), revision: message.seq, text, at: message.info.timestampNanos })
    })
    const subscription = await js.subscribe(`${start}>`, options)
    atEnd(t, () => subscription.destroy().catch(() => { /* the server is gone */ }))
  }
  return {
    epoch: await mesh.epoch('compositions'),
    async caughtUp () {
      for (const bucket of watched) {
        const { state } = await mesh.jsm.streams.info(`KV_${mesh.prefix}${bucket}`)
        // What was purged meanwhile is never delivered: the last message that is still there is what can be waited for.
        await eventually(`all writes of ${bucket} are heard`, () => state.messages === 0 || (heard.get(bucket) ?? 0) >= state.last_seq, 15_000)
      }
      return [...took].sort((a, b) => a.at - b.at)
    }
  }
}
