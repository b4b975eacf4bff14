/** Those who listen in: to every word on the bus, and to every write that a bucket took. */
import type { NatsConnection } from 'nats'
import type { parsed } from '../wire/bytes.js'
import { atEnd, type Owner } from '../owner.js'
import { decode, decodeJson } from './client.js'

export interface Heard { subject: string, reply: string | undefined, text: string, at: number }

export interface Spy {
  readonly heard: Heard[]
  /** What was heard on the subjects that start so. */
  of (start: string): Heard[]
}

/** Hears everything that anybody publishes from now on. */
export async function spy (t: Owner, nc: NatsConnection): Promise<Spy> {
  const heard: Heard[] = []
  const subscription = nc.subscribe('>', {
    callback: (error, { subject, reply, data }) => { if (!error) heard.push({ subject, reply, text: decode(data), at: Date.now() }) }
  })
  atEnd(t, () => subscription.unsubscribe())
  await nc.flush()
  return { heard, of: (start) => heard.filter((one) => one.subject.startsWith(start)) }
}

export interface Write { bucket: string, key: string, value: ReturnType<typeof parsed>, op: string, seq: number, at: number }

export interface BucketSpy {
  /** The writes in the order in which the buckets took them. */
  readonly writes: Write[]
  of (bucket: string, key?: string): Write[]
}

interface BucketSpyOptions { prefix?: string, on?: (write: Write, writes: Write[]) => void }

/**
 * Hears every write from now on that a bucket took. One that was refused (another revision stood than was expected) is not
 * among them: the bucket's acknowledgement to the writer, heard beside the write, says which it was.
 */
export async function bucketSpy (t: Owner, nc: NatsConnection, { prefix = 'mesh_', on }: BucketSpyOptions = {}): Promise<BucketSpy> {
  const writes: Write[] = []
  const open = new Map<string, Omit<Write, 'seq' | 'at'>>()
  const writing = nc.subscribe('$KV.>', {
    callback: (error, { subject, reply, data, headers }) => {
      const [, bucket = '', ...key] = subject.split('.')
      if (error || !reply || !bucket.startsWith(prefix)) return
      const op = headers?.get('KV-Operation') || 'PUT'
      open.set(reply, { bucket: bucket.slice(prefix.length), key: key.join('.'), value: decodeJson(data), op })
    }
  })
  const acknowledging = nc.subscribe('_INBOX.>', {
    callback: (error, { subject, data }) => {
      const write = open.get(subject)
      if (error || !write) return
      open.delete(subject)
      const acknowledged = decodeJson(data)
      if (!acknowledged?.seq || acknowledged.error) return
      const taken = { ...write, seq: acknowledged.seq, at: Date.now() }
      writes.push(taken)
      on?.(taken, writes)
    }
  })
  atEnd(t, () => { writing.unsubscribe(); acknowledging.unsubscribe() })
  await nc.flush()
  return { writes, of: (bucket, key) => writes.filter((write) => write.bucket === bucket && (key === undefined || write.key === key)) }
}
