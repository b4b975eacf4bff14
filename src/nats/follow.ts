/**
 * Follows a bucket's keys, live: across reconnects, server restarts, and a bucket that was deleted and made again. The
 * client library's own watch can end without a word and loses the first value of a bucket made anew; here every restart
 * compares the bucket's creation time and, where it differs, starts from all keys (DESIGN section 4).
 *
 * A server may also leave messages out without a sign: when anybody purges a key, nats-server before 2.9.15 (and later ones for some
 * filters) moves consumers past what they have not been handed yet, of other keys as well. So while a bucket changes it is read a second
 * time, and what was left out is handed late.
 */
import { AckPolicy, DeliverPolicy, Events, NatsError, type JetStreamManager, type Msg, type NatsConnection, type Subscription } from 'nats'
import { limits } from '../core/limits.js'
import type { BucketName, Entry } from '../core/ports.js'
import { isMarker, streamOf, subjectOf } from './buckets.js'
import { headersOf } from './headers.js'
import { newConsumerName, newInbox } from './user.js'

export interface Followed {
  /** Starts (again) from all keys: what was handed before is forgotten. `epoch` is the bucket's creation time in ms. */
  anew (epoch: number): void
  /** One key's write or marker, each key's in the order of the stream; its revision is the stream's sequence. */
  entry (entry: Entry): void
  /** All that stood at the start has been handed; called once after each `anew`. */
  ready (): void
  /** The bus was away or silent and is followed again from where it stood, nothing left out. */
  resumed? (): void
  /** Following is broken and being tried again; said once for each cause. */
  trouble? (why: string): void
}

/** Which keys of which bucket: a filter of tokens, `*` and `>`. */
export interface FollowedKeys {
  prefix: string
  bucket: BucketName
  filter: string
  /** Hands what is written from now on alone; `ready` says that this has begun. */
  onlyNew?: boolean
  /** Hands keys without their texts: what matters is that they are there. */
  keysOnly?: boolean
}

export interface Following { stop (): Promise<void> }

const decoder = new TextDecoder()

/** The message that was handed last, which has to come again after a restart, or the bucket is another; and what is done where it does not come. */
interface Known { sequence: number, time: string, missing (): void, resuming: boolean }

class Follower implements Following {
  readonly #stream: string
  readonly #start: string
  #jsm: JetStreamManager | undefined
  #epoch: number | undefined
  #last = 0 // highest stream sequence that was handed
  #lastTime: string | undefined // when the bus stored that message; undefined where none was handed
  #known: Known | undefined
  #checked = 0 // stream sequence up to which nothing was left out; 0: not known of anything
  #handed = new Map<string, number>() // revisions by key, of what was handed beyond that
  #pass: { upTo: number, tries: number } | undefined // the last reading: how far the stream had come when it began
  #checkAt = 0
  #readAt = 0
  #ready = false
  #sub: Subscription | undefined
  #consumer: { name: string, delivered: number } | undefined
  #heardAt = 0
  #followedAt = 0 // when a message or a heartbeat last said that nothing is missed
  #round = 0 // each (re)start has a number; whatever belongs to an older one is ignored
  #timer: NodeJS.Timeout
  #stopped = false
  #said = ''
  #restarting = false
  #again = false

  constructor (private readonly nc: NatsConnection, private readonly of: FollowedKeys, private readonly on: Followed) {
    this.#stream = streamOf(of.prefix, of.bucket)
    this.#start = subjectOf(of.prefix, of.bucket, '')
    this.#timer = setInterval(() => this.#look(), limits.heartbeatMs / 2)
    void this.#hearReconnects()
    void this.#restart()
  }

  async stop (): Promise<void> {
    this.#stopped = true
    clearInterval(this.#timer)
    await this.#drop()
  }

  async #hearReconnects (): Promise<void> {
    for await (const { type } of this.nc.status()) {
      if (this.#stopped) return
      if (type === Events.Reconnect) void this.#restart()
    }
  }

  /** A consumer that has not been heard for two heartbeats is gone, or the bucket is. */
  #look (): void {
    if (this.#restarting) return
    const now = Date.now()
    if (now - this.#heardAt > 2 * limits.heartbeatMs) void this.#restart()
    // What it waits for may have been purged.
    else if (!this.#ready && now - this.#readAt > limits.followCheckMs) void this.#restart()
    else if (this.#ready && now >= this.#checkAt) {
      this.#checkAt = now + limits.followCheckMs
      void this.#check()
    }
  }

  /** Reads again what came since the last reading that nothing can have disturbed: one during which nothing was written. */
  async #check (): Promise<void> {
    const info = await this.#jsm?.streams.info(this.#stream).catch(() => undefined)
    // Where it cannot be told now, or it is another bucket, the heartbeats tell.
    if (!info || this.#stopped || Date.parse(info.created) !== this.#epoch) return
    const { last_seq: last, first_seq: first } = info.state
    // All that was handed is gone, without a marker.
    if (this.#lastTime !== undefined && first > this.#last) return this.#rewound()
    const pass = this.#pass
    if (pass && (pass.upTo === last || pass.tries >= limits.followCheckTries)) {
      this.#checked = pass.upTo
      this.#pass = undefined
      for (const [key, revision] of this.#handed) if (revision <= this.#checked) this.#handed.delete(key)
    }
    if (last > this.#checked) await this.#restart({ again: true })
  }

  /** One restart at a time; a call during one makes one more after it. `again`: what was handed is read a second time. */
  async #restart ({ again = false } = {}): Promise<void> {
    if (this.#restarting) {
      this.#again ||= !again
      return
    }
    this.#restarting = true
    for (let second = again, more = true; more; second = false, more = this.#again) {
      this.#again = false
      // On a connection that closed for good nothing is followed any more: whoever holds it starts anew on the next one.
      if (this.#stopped || this.nc.isClosed()) break
      try {
        await this.#begin(second)
        this.#said = ''
      } catch (error) {
        const why = whyNot(error)
        if (why !== this.#said) this.on.trouble?.(`cannot follow the bucket ${this.of.prefix}${this.of.bucket}: ${why}`)
        this.#said = why
      }
      this.#heardAt = Date.now()
    }
    this.#restarting = false
  }

  async #begin (asSecond: boolean): Promise<void> {
    const round = ++this.#round
    // A consumer that is gone may have gone with its bucket, and what was handed has to be known again before anything is read a second time.
    const second = await this.#drop() && asSecond
    this.#jsm ??= await this.nc.jetstreamManager({ checkAPI: false, timeout: limits.jetstreamMs })
    const { created, state } = await this.#jsm.streams.info(this.#stream)
    if (this.#stopped) return
    const epoch = Date.parse(created)
    // A restore keeps the creation time, so sequences that went back are the other sign of a bucket that is not the one we knew; where
    // they have gone on since, what was handed last is another message. After a long silence a key may be gone without a trace.
    const anew = epoch !== this.#epoch || state.last_seq < this.#last || !this.#ready || Date.now() - this.#followedAt > limits.followAnewMs
    const start = this.#from(anew, second)
    this.#known = this.#knownAgain(start.opt_start_seq, second)
    const isKnown = this.#known !== undefined
    const inbox = newInbox(this.nc)
    this.#consumer = { name: '', delivered: 0 }
    let pending = -1
    const early: Msg[] = []
    // Messages may come before the answer that says how many are pending; they wait for it.
    this.#sub = this.nc.subscribe(inbox, {
      callback: (error, msg) => {
        if (error || round !== this.#round) return
        if (pending < 0) early.push(msg)
        else this.#message(msg)
      }
    })
    const info = await this.#jsm.consumers.add(this.#stream, {
      // With a name, name and filter stand in the subject of the call: so a user can be allowed some keys of a bucket alone.
      name: newConsumerName(),
      deliver_subject: inbox,
      filter_subject: this.#start + this.of.filter,
      ack_policy: AckPolicy.None,
      ...start,
      ...(this.of.keysOnly ? { headers_only: true } : {}),
      idle_heartbeat: limits.heartbeatMs * 1_000_000,
      flow_control: true,
      mem_storage: true,
      num_replicas: 1,
      inactive_threshold: 10 * limits.heartbeatMs * 1_000_000
    })
    if (this.#stopped || round !== this.#round) return
    this.#consumer.name = info.name
    // Made anew between the two calls, the bucket would be followed from a sequence of the old one.
    if (Date.parse((await this.#jsm.streams.info(this.#stream)).created) !== epoch) throw new Error('it was made anew just now')
    if (this.#stopped || round !== this.#round) return
    this.#heardAt = this.#readAt = this.#followedAt = Date.now()
    if (anew) {
      this.#epoch = epoch
      this.#last = 0
      this.#lastTime = undefined
      this.#checked = this.of.onlyNew ? state.last_seq : 0
      this.#handed.clear()
      this.#ready = false
      this.on.anew(epoch)
    }
    if (anew || second) this.#pass = { upTo: state.last_seq, tries: second && this.#pass ? this.#pass.tries + 1 : 1 }
    pending = info.num_pending
    if (anew && pending === 0) {
      this.#last = state.last_seq
      this.#markReady()
    }
    const resuming = !anew && (!second || this.#said !== '')
    if (this.#known) this.#known.resuming = resuming
    if (this.#known && pending === 0 && early.length === 0) return this.#known.missing()
    for (const msg of early) if (round === this.#round) this.#message(msg)
    if (resuming && !isKnown) this.on.resumed?.()
  }

  #knownAgain (start: number | undefined, second: boolean): Known | undefined {
    if (this.#lastTime === undefined || start === undefined || start > this.#last) return undefined
    const missing = (): void => {
      this.#known = undefined
      if (!second) this.#rewound()
      // A second reading may have been disturbed; a key of which only the newest is wanted may have been written since.
      else if (!this.of.onlyNew) void this.#restart()
    }
    return { sequence: this.#last, time: this.#lastTime, missing, resuming: false }
  }

  /** The bucket is not the one that was followed: it starts again from all keys. */
  #rewound (): void {
    this.#round++
    this.#ready = false
    void this.#restart()
  }

  /** Where a consumer begins. */
  #from (anew: boolean, second: boolean): { deliver_policy: DeliverPolicy, opt_start_seq?: number } {
    if (anew && this.of.onlyNew) return { deliver_policy: DeliverPolicy.New }
    if (anew || (second && this.#checked === 0)) return { deliver_policy: DeliverPolicy.LastPerSubject }
    // What was handed last comes first, to be known again.
    const from = second ? this.#checked + 1 : this.#lastTime === undefined ? this.#last + 1 : this.#last
    return { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: from }
  }

  #message (msg: Msg): void {
    const round = this.#round
    this.#heardAt = this.#followedAt = Date.now()
    const consumer = this.#consumer
    if (!consumer) return
    if (headersOf(msg)?.code === 100) return this.#status(msg, consumer)
    // $JS.ACK.STREAM.CONSUMER.TRIES.STREAM_SEQ.CONSUMER_SEQ.TIME.PENDING; newer servers put a domain and an account in front
    const tokens = msg.reply?.split('.') ?? []
    const at = tokens.length > 9 ? 7 : 5
    const sequence = Number(tokens[at])
    const delivered = Number(tokens[at + 1])
    const pending = Number(tokens[at + 3])
    if (delivered !== consumer.delivered + 1) {
      void this.#restart()
      return
    }
    consumer.delivered = delivered
    const time = tokens[at + 2]
    const known = this.#known
    if (known && sequence >= known.sequence) {
      if (sequence > known.sequence) known.missing()
      else if (time !== known.time) this.#rewound()
      if (this.#round !== round) return
      this.#known = undefined
      if (known.resuming) this.on.resumed?.()
      if (sequence === known.sequence) return
    }
    if (sequence > this.#last) [this.#last, this.#lastTime] = [sequence, time]
    this.#readAt = this.#heardAt
    const key = msg.subject.slice(this.#start.length)
    if (sequence > (this.#handed.get(key) ?? 0)) {
      this.#handed.set(key, sequence)
      const deleted = isMarker(headersOf(msg))
      this.on.entry({ key, revision: sequence, deleted, text: deleted ? '' : decoder.decode(msg.data) })
    }
    if (!this.#ready && pending === 0) this.#markReady()
  }

  /** Heartbeats and flow control. */
  #status (msg: Msg, consumer: { delivered: number }): void {
    if (msg.reply) msg.respond()
    const stalled = headersOf(msg)?.get('Nats-Consumer-Stalled')
    if (stalled) this.nc.publish(stalled)
    const said = headersOf(msg)?.get('Nats-Last-Consumer')
    // The server delivered more than was heard: start again behind what was handed last.
    if (said && Number(said) !== consumer.delivered) void this.#restart()
  }

  #markReady (): void {
    this.#ready = true
    this.on.ready()
  }

  /** Lets go of the consumer; answers whether it was still there. */
  async #drop (): Promise<boolean> {
    const name = this.#consumer?.name
    if (!this.nc.isClosed()) this.#sub?.unsubscribe()
    this.#sub = undefined
    this.#consumer = undefined
    if (!name || !this.#jsm || this.nc.isClosed()) return false
    // One that is not reached ends by itself.
    return this.#jsm.consumers.delete(this.#stream, name).catch(() => false)
  }
}

/** A refusal names a consumer that is another one at each try; what is said of it is the same each time. */
const whyNot = (error: unknown): string => error instanceof NatsError && error.isPermissionError()
  ? 'the bus does not let this user follow it'
  : (error as Error).message

/** Follows keys of a bucket until it is stopped. */
export const follow = (nc: NatsConnection, of: FollowedKeys, on: Followed): Following => new Follower(nc, of, on)
