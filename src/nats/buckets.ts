/** The buckets of DESIGN section 5 on JetStream KV: made once, read from the leader, written by compare-and-set. */
import { headers, NatsError, type JetStreamClient, type JetStreamManager, type MsgHdrs, type NatsConnection } from 'nats'
import { Conflict, Transient } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { bucketNames, type BucketName, type Entry, type Store } from '../core/ports.js'
import { Calls } from './calls.js'

const history: Record<BucketName, number> = { trunk: 1, builds: 1, inventory: 8, settings: 8, compositions: 8, grants: 8, takeins: 64 }

export const streamOf = (prefix: string, bucket: BucketName): string => `KV_${prefix}${bucket}`
export const subjectOf = (prefix: string, bucket: BucketName, key: string): string => `$KV.${prefix}${bucket}.${key}`

/** JetStream's own error numbers that are answers, not faults. */
const codes = { streamNotFound: 10059, messageNotFound: 10037, wrongLastSequence: 10071 }
const errorCode = (error: unknown): number | undefined => error instanceof NatsError ? error.api_error?.err_code : undefined

/** What the bus's user was not allowed to do: rights are missing (see `rights.ts`), and trying again does not help. */
export class Refused extends Error {
  override readonly name = 'Refused'
}

/**
 * What a JetStream error means to a step: a timeout, a cut connection, no responders (no leader, no JetStream) or a 5xx of
 * the API may go better in a moment; anything else is handed on as it is.
 */
function asFault (error: unknown, what: string): unknown {
  if (!(error instanceof NatsError)) return error
  if (error.isPermissionError()) return new Refused(`${what}: the bus does not let this user do that`, { cause: error })
  const passing = ['TIMEOUT', '503', 'CONNECTION_CLOSED', 'CONNECTION_DRAINING', 'DISCONNECT'].includes(error.code) ||
    (error.api_error !== undefined && error.api_error.code >= 500)
  const why = error.code === 'TIMEOUT' ? `no answer within ${limits.jetstreamMs} ms` : error.code === '503' ? 'nobody answers' : error.message
  return passing ? new Transient(`${what}: ${why}`, { cause: error }) : new Error(`${what}: ${why}`, { cause: error })
}

/** Which buckets are missing, in the order they are made. */
export async function missingBuckets (nc: NatsConnection, prefix: string): Promise<BucketName[]> {
  const jsm = await nc.jetstreamManager({ checkAPI: false, timeout: limits.jetstreamMs })
  const stands = await Promise.all(bucketNames.map(async (bucket) => {
    try {
      await jsm.streams.info(streamOf(prefix, bucket))
      return true
    } catch (error) {
      if (errorCode(error) === codes.streamNotFound) return false
      throw asFault(error, `looking for the bucket ${prefix}${bucket}`)
    }
  }))
  return bucketNames.filter((_, i) => !stands[i])
}

/**
 * Makes the buckets where `takeins`, the last of them, is missing. Once it stands, another that is missing is an accident or
 * a restore in progress: nothing is made (DESIGN section 5). Answers which are missing.
 */
export async function ensureBuckets (nc: NatsConnection, { prefix, replicas }: { prefix: string, replicas: number }): Promise<BucketName[]> {
  const missing = await missingBuckets(nc, prefix)
  if (!missing.includes('takeins')) return missing
  const js = nc.jetstream({ timeout: limits.jetstreamMs, checkAPI: false })
  for (const bucket of bucketNames) {
    if (!missing.includes(bucket)) continue
    try {
      await js.views.kv(prefix + bucket, { history: history[bucket], replicas, allow_direct: false, timeout: limits.jetstreamMs })
    } catch (error) {
      throw asFault(error, `making the bucket ${prefix}${bucket}`)
    }
  }
  return []
}

/** Whether a message is a delete or purge marker. */
export const isMarker = (of: MsgHdrs | undefined): boolean => ['DEL', 'PURGE'].includes(of?.get('KV-Operation') ?? '')

const decoder = new TextDecoder()
const encoder = new TextEncoder()

export class NatsStore implements Store {
  readonly #calls: Calls
  readonly #js: JetStreamClient
  #jsm: JetStreamManager | undefined

  constructor (private readonly nc: NatsConnection, private readonly prefix: string) {
    this.#calls = new Calls(nc)
    this.#js = nc.jetstream({ timeout: limits.jetstreamMs })
  }

  async epoch (bucket: BucketName): Promise<number> {
    const { created } = await this.#ask(`looking at the bucket ${bucket}`, (jsm) => jsm.streams.info(streamOf(this.prefix, bucket)))
    return Date.parse(created)
  }

  async read (bucket: BucketName, key: string): Promise<Entry | undefined> {
    // A stored message is handed out by the stream's leader; a direct get could come from a replica that is behind.
    const query = { last_by_subj: subjectOf(this.prefix, bucket, key) }
    const found = await this.#ask(`reading ${bucket} ${key}`, (jsm) =>
      jsm.streams.getMessage(streamOf(this.prefix, bucket), query).catch((error: unknown) => {
        if (errorCode(error) === codes.messageNotFound) return undefined
        throw error
      }))
    if (!found) return undefined
    const deleted = isMarker(found.header)
    return { key, revision: found.seq, deleted, text: deleted ? '' : decoder.decode(found.data) }
  }

  async readAll (bucket: BucketName, filter: string): Promise<Map<string, Entry>> {
    const start = subjectOf(this.prefix, bucket, '')
    const { state } = await this.#ask(`listing ${bucket} ${filter}`, (jsm) =>
      jsm.streams.info(streamOf(this.prefix, bucket), { subjects_filter: start + filter }))
    const keys = Object.keys(state.subjects ?? {}).map((subject) => subject.slice(start.length))
    const found = new Map<string, Entry>()
    const left = keys.sort().reverse()
    const reader = async (): Promise<void> => {
      for (let key = left.pop(); key !== undefined; key = left.pop()) {
        const entry = await this.read(bucket, key)
        if (entry) found.set(key, entry)
      }
    }
    await Promise.all(Array.from({ length: Math.min(limits.readsInFlight, keys.length) }, reader))
    return found
  }

  async write (bucket: BucketName, key: string, text: string, previous: number): Promise<number> {
    return this.#publish(bucket, key, text, previous)
  }

  async purge (bucket: BucketName, key: string, previous: number): Promise<number> {
    // Nats-Rollup makes the marker take the place of all that was written under the key: nothing sealed lingers in the history.
    const marker = headers()
    marker.set('KV-Operation', 'PURGE')
    marker.set('Nats-Rollup', 'sub')
    return this.#publish(bucket, key, '', previous, marker)
  }

  async #publish (bucket: BucketName, key: string, text: string, previous: number, marker?: MsgHdrs): Promise<number> {
    const what = `writing ${bucket} ${key}`
    try {
      const ack = await this.#calls.run(what, () => this.#js.publish(subjectOf(this.prefix, bucket, key), encoder.encode(text), {
        expect: { lastSubjectSequence: previous }, ...(marker ? { headers: marker } : {})
      }))
      return ack.seq
    } catch (error) {
      if (errorCode(error) === codes.wrongLastSequence) throw new Conflict(`${bucket} ${key} was written by another`)
      const fault = asFault(error, what)
      if (!(fault instanceof Transient)) throw fault
      // The write may have been taken though its acknowledgement is lost: what stands tells (DESIGN section 3).
      const stands = await this.read(bucket, key).catch(() => { throw fault })
      if ((stands?.revision ?? 0) === previous) throw fault
      if (stands && stands.text === text && stands.deleted === (marker !== undefined)) return stands.revision
      throw new Conflict(`${bucket} ${key} was written by another`)
    }
  }

  async #ask<T> (what: string, work: (jsm: JetStreamManager) => Promise<T>): Promise<T> {
    const jsm = this.#jsm ??= await this.nc.jetstreamManager({ checkAPI: false, timeout: limits.jetstreamMs })
    try {
      return await this.#calls.run(what, () => work(jsm))
    } catch (error) {
      throw asFault(error, what)
    }
  }
}
