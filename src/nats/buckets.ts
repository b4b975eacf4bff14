/** The buckets of DESIGN section 5 on JetStream KV: made once, read from the leader, written by compare-and-set. */
import { LRUCache } from 'lru-cache'
import { headers, NatsError, type MsgHdrs, type NatsConnection } from 'nats'
import { BadDocument, Conflict, Transient } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { bucketNames, type BucketName, type Entry, type Listing, type Store } from '../core/ports.js'
import { each } from '../core/take-in/each.js'
import { NotAllowed, StreamAsks, TooLarge, type ApiFailure, type Reply } from './stream-asks.js'

const history: Record<BucketName, number> = { trunk: 1, builds: 1, inventory: 8, settings: 8, compositions: 8, grants: 8, takeins: 64 }

export const streamOf = (prefix: string, bucket: BucketName): string => `KV_${prefix}${bucket}`
export const subjectOf = (prefix: string, bucket: BucketName, key: string): string => `$KV.${prefix}${bucket}.${key}`

/** JetStream's own error numbers that are answers, not faults. */
const codes = { streamNotFound: 10059, messageNotFound: 10037, wrongLastSequence: 10071 }
/** What a delete answers where there is no such message any more; its number is that of any delete that failed. */
const alreadyGone = /no message found|EOF|deleted/i
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
  if (error instanceof NotAllowed) return new Refused(`${what}: ${error.message}`, { cause: error })
  if (error instanceof TooLarge) return new BadDocument(`${what}: ${error.message}`, { cause: error })
  if (error instanceof Transient) return new Transient(`${what}: ${error.message}`, { cause: error })
  if (!(error instanceof NatsError)) return error
  if (error.isPermissionError()) return new Refused(`${what}: the bus does not let this user do that`, { cause: error })
  const passing = ['TIMEOUT', '503', 'CONNECTION_CLOSED', 'CONNECTION_DRAINING', 'DISCONNECT'].includes(error.code) ||
    (error.api_error !== undefined && error.api_error.code >= 500)
  const why = error.code === 'TIMEOUT' ? `no answer within ${limits.jetstreamMs} ms` : error.code === '503' ? 'nobody answers' : error.message
  return passing ? new Transient(`${what}: ${why}`, { cause: error }) : new Error(`${what}: ${why}`, { cause: error })
}

/** The same for an answer of the API that is an error. */
function ofFailure ({ code, description = 'an error without a text' }: ApiFailure, what: string): Error {
  return code >= 500 ? new Transient(`${what}: ${description}`) : new Error(`${what}: ${description}`)
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

const markerLine = /^KV-Operation: *(?:DEL|PURGE) *$/m

/** Whether a message is a delete or purge marker. */
export const isMarker = (of: MsgHdrs | undefined): boolean => ['DEL', 'PURGE'].includes(of?.get('KV-Operation') ?? '')

interface StreamInfo {
  created: string
  config: { max_msgs_per_subject?: number }
  /** How many keys a filter names, where one answer does not hold them all. */
  total?: number
  state: { subjects?: Record<string, number> }
}

/** A stored message; its data and headers are in base64. */
interface Stored { message: { seq: number, data?: string, hdrs?: string } }

const decoded = (base64: string | undefined): string => base64 === undefined ? '' : Buffer.from(base64, 'base64').toString()

export class NatsStore implements Store {
  #asks: StreamAsks | undefined
  /** Markers that were read last of their key, how many messages there were then, and in which making of the bucket. */
  readonly #markers = new LRUCache<string, { created: string, count: number, entry: Entry }>({ max: limits.markersKnown })

  /** Keys with a value, of each listing as it was the last time. */
  readonly #listed = new LRUCache<string, string[]>({ max: limits.listingsKnown })

  constructor (private readonly nc: NatsConnection, private readonly prefix: string) {}

  async epoch (bucket: BucketName): Promise<number> {
    return Date.parse((await this.#info(bucket, `looking at the bucket ${bucket}`)).created)
  }

  async read (bucket: BucketName, key: string): Promise<Entry | undefined> {
    const what = `reading ${bucket} ${key}`
    // A stored message is handed out by the stream's leader; a direct get could come from a replica that is behind.
    const question = JSON.stringify({ last_by_subj: subjectOf(this.prefix, bucket, key) })
    const { error, message } = await this.#ask<Stored>(what, `$JS.API.STREAM.MSG.GET.${streamOf(this.prefix, bucket)}`, question)
    if (error?.err_code === codes.messageNotFound) return undefined
    if (error) throw ofFailure(error, what)
    const { seq, data, hdrs } = message
    const deleted = hdrs !== undefined && markerLine.test(decoded(hdrs))
    if (!deleted) this.#markers.delete(`${bucket} ${key}`)
    return { key, revision: seq, deleted, text: deleted ? '' : decoded(data) }
  }

  /**
   * The names from the stream's leader, then each key from the leader as well. One consumer with the last message of each key would
   * be no quicker (4,000 keys: 80 ms, and 100 ms like this), and with replicas it may be led by a server that is behind.
   */
  async readAll (bucket: BucketName, filter: string): Promise<Listing> {
    // The keys of the last time are probably those of this time: they are read beside their names.
    const before = this.#listed.get(`${bucket} ${filter}`) ?? []
    const read = new Map<string, Entry | undefined>()
    const [{ created, most, counts }] = await Promise.all([
      this.#names(bucket, filter), each(before, async (key) => { read.set(key, await this.read(bucket, key)) })
    ])
    const found: Listing = Object.assign(new Map<string, Entry>(), { epoch: Date.parse(created) })
    const alive: string[] = []
    // Each build leaves a marker in the grants: all that is known of them costs no promise, and no read.
    const take = (key: string, count: number, entry: Entry | undefined): void => {
      if (!entry) return
      found.set(key, entry.deleted && count > 1 && bucket === 'compositions' ? { ...entry, lingers: true } : entry)
      if (entry.deleted) this.#markers.set(`${bucket} ${key}`, { created, count, entry })
      else alive.push(key)
    }
    const unread: Array<[string, number]> = []
    for (const [key, count] of counts) {
      // A value that was written after the marker would be one message more, unless the history is full or was erased since, which leaves one.
      const marker = this.#markers.get(`${bucket} ${key}`)
      const isStill = marker?.created === created && marker.count === count && count < most && (bucket === 'grants' || count === 1)
      const entry = isStill ? marker.entry : read.get(key)
      if (entry) take(key, count, entry)
      else unread.push([key, count])
    }
    await each(unread, async ([key, count]) => { take(key, count, await this.read(bucket, key)) })
    this.#listed.set(`${bucket} ${filter}`, alive)
    return found
  }

  /** The names of the keys, how many messages each has, and how many it may have. */
  async #names (bucket: BucketName, filter: string): Promise<{ created: string, most: number, counts: Map<string, number> }> {
    const start = subjectOf(this.prefix, bucket, '')
    const counts = new Map<string, number>()
    for (;;) {
      const had = counts.size
      const question = { subjects_filter: start + filter, offset: had }
      const { created, config, total = 0, state } = await this.#info(bucket, `listing ${bucket} ${filter}`, question)
      for (const [subject, count] of Object.entries(state.subjects ?? {})) counts.set(subject.slice(start.length), count)
      if (counts.size >= total || counts.size === had) return { created, most: config.max_msgs_per_subject ?? 0, counts }
    }
  }

  async write (bucket: BucketName, key: string, text: string, previous: number): Promise<number> {
    return this.#publish(bucket, key, text, previous)
  }

  async purge (bucket: BucketName, key: string, previous: number): Promise<number> {
    const marker = headers()
    marker.set('KV-Operation', 'PURGE')
    const revision = await this.#publish(bucket, key, '', previous, marker)
    // A grant holds nothing that must not linger; its history says which there were.
    if (bucket === 'grants') return revision
    // Mostly there is but the one message that the marker was put after; the rest is looked for beside.
    await Promise.all([previous > 0 && this.#delete(bucket, key, previous), this.erase(bucket, key, revision - 1)])
    return revision
  }

  /**
   * Message by message. A rollup in the marker's write would do it at once, but nats-server before 2.9.15 moves consumers past messages
   * that they were not handed yet when it does.
   */
  async erase (bucket: BucketName, key: string, upTo: number): Promise<void> {
    const what = `erasing the history of ${bucket} ${key}`
    for (let from = 1; ;) {
      const question = JSON.stringify({ seq: from, next_by_subj: subjectOf(this.prefix, bucket, key) })
      const { error, message } = await this.#ask<Stored>(what, `$JS.API.STREAM.MSG.GET.${streamOf(this.prefix, bucket)}`, question)
      if (error?.err_code === codes.messageNotFound) return
      if (error) throw ofFailure(error, what)
      if (message.seq > upTo) return
      await this.#delete(bucket, key, message.seq)
      from = message.seq + 1
    }
  }

  async #delete (bucket: BucketName, key: string, seq: number): Promise<void> {
    const what = `erasing the history of ${bucket} ${key}`
    // What is sealed is written over on the disk; of other documents it is enough that nobody can read them any more, which is much quicker.
    const question = JSON.stringify({ seq, no_erase: bucket !== 'compositions' })
    const { error } = await this.#ask(what, `$JS.API.STREAM.MSG.DELETE.${streamOf(this.prefix, bucket)}`, question)
    // Another may erase the same at the same time.
    if (error && !alreadyGone.test(error.description ?? '')) throw ofFailure(error, what)
  }

  async #publish (bucket: BucketName, key: string, text: string, previous: number, marker?: MsgHdrs): Promise<number> {
    const what = `writing ${bucket} ${key}`
    // Another marker may have taken the place of the one that is known: then this write loses, and the next look has to read it.
    this.#markers.delete(`${bucket} ${key}`)
    const expecting = marker ?? headers()
    expecting.set('Nats-Expected-Last-Subject-Sequence', String(previous))
    const conflict = (): Conflict => new Conflict(`${bucket} ${key} was written by another`)
    try {
      const { error, seq } = await this.#ask<{ seq: number }>(what, subjectOf(this.prefix, bucket, key), text, expecting)
      if (error?.err_code === codes.wrongLastSequence) throw conflict()
      if (error) throw ofFailure(error, what)
      this.#willBeListed(bucket, key)
      return seq
    } catch (error) {
      if (!(error instanceof Transient)) throw error
      // The write may have been taken though its acknowledgement is lost: what stands tells (DESIGN section 3).
      const stands = await this.read(bucket, key).catch(() => { throw error })
      if ((stands?.revision ?? 0) === previous) throw error
      if (stands && stands.text === text && stands.deleted === (marker !== undefined)) return stands.revision
      throw conflict()
    }
  }

  /** A key that was written just now is among those of the next listing, which then reads it beside the names. */
  #willBeListed (bucket: BucketName, key: string): void {
    const [first, ...rest] = key.split('.')
    for (const filter of [`${first}.*`, `*.${rest.join('.')}`]) {
      const listed = this.#listed.get(`${bucket} ${filter}`)
      if (listed && !listed.includes(key)) listed.push(key)
    }
  }

  async #info (bucket: BucketName, what: string, question: object = {}): Promise<StreamInfo> {
    const { error, ...info } = await this.#ask<StreamInfo>(what, `$JS.API.STREAM.INFO.${streamOf(this.prefix, bucket)}`, JSON.stringify(question))
    if (error) throw ofFailure(error, what)
    return info
  }

  async #ask<T extends object> (what: string, subject: string, question: string, headers?: MsgHdrs): Promise<Reply<T>> {
    this.#asks ??= new StreamAsks(this.nc)
    try {
      return await this.#asks.ask<T>(subject, question, headers)
    } catch (error) {
      throw asFault(error, what)
    }
  }
}
