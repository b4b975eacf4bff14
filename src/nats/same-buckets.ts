/** Whether buckets are still those that were looked at before: not made anew, not emptied, not put back from an older copy. */
import type { JetStreamManager, NatsConnection, StreamInfo } from 'nats'
import { limits } from '../core/limits.js'
import type { BucketName } from '../core/ports.js'
import { streamOf, subjectOf } from './buckets.js'

/** A message that was stored: its sequence, and its time or its subject. */
interface Mark { sequence: number, time?: number, subject?: string }

/** A stream as it was seen; the last message that it had, and what this process wrote since, the oldest first. */
interface Seen { created: string, marks: Mark[] }

export class SameBuckets {
  readonly #seen = new Map<BucketName, Seen>()

  constructor (private readonly prefix: string, private readonly buckets: readonly BucketName[]) {}

  /** This process wrote a key just now: what is put back afterwards does not have it. */
  wrote (bucket: BucketName, key: string, sequence: number): void {
    const seen = this.#seen.get(bucket)
    if (!seen) return
    // Thinned out, so that old ones stay: what was written after an accident says nothing of it.
    if (seen.marks.length >= limits.bucketMarks) seen.marks = seen.marks.filter((_, at) => at % 2 === 0)
    seen.marks.push({ sequence, subject: subjectOf(this.prefix, bucket, key) })
  }

  /** Looks again; answers which are others by now. Nothing is another the first time. Rejects where the bus cannot tell. */
  async others (nc: NatsConnection): Promise<BucketName[]> {
    const jsm = await nc.jetstreamManager({ checkAPI: false, timeout: limits.jetstreamMs })
    const others: BucketName[] = []
    for (const bucket of this.buckets) {
      const stream = streamOf(this.prefix, bucket)
      const seen = this.#seen.get(bucket)
      // As they are now: what is written from here on, the answer may not have.
      const marks = [...seen?.marks ?? []]
      const now = await jsm.streams.info(stream)
      if (seen && await isOther(jsm, stream, { created: seen.created, marks }, now)) others.push(bucket)
      const { created, state: { messages, last_seq: sequence, last_ts: time } } = now
      const since = seen?.marks.filter((mark) => !marks.includes(mark)) ?? []
      this.#seen.set(bucket, { created, marks: [...messages > 0 ? [{ sequence, time: Date.parse(time) }] : [], ...since] })
    }
    return others
  }
}

/** A restore keeps the creation time: then a message that is known is none any more, or, where others were written since, another. */
async function isOther (jsm: JetStreamManager, stream: string, { created, marks }: Seen, { created: now, state }: StreamInfo): Promise<boolean> {
  if (now !== created || marks.some(({ sequence }) => sequence > state.last_seq)) return true
  if (marks.some((mark, at) => mark.sequence < state.first_seq && !wasWrittenOver(mark, marks.slice(at + 1)))) return true
  for (const { sequence, time, subject } of marks) {
    if (sequence === state.last_seq && time !== undefined) {
      if (Date.parse(state.last_ts) !== time) return true
      continue
    }
    // One that is gone was written over since, or erased with its key: that is no sign.
    const stored = await jsm.streams.getMessage(stream, { seq: sequence }).catch(() => null)
    if (stored !== null && (subject === undefined ? stored.time.getTime() !== time : stored.subject !== subject)) return true
  }
  return false
}

/** Whether a message may be gone because its key was written since, as often as its history is long. */
const wasWrittenOver = ({ subject }: Mark, later: Mark[]): boolean =>
  subject === undefined ? later.length > 0 : later.some((mark) => mark.subject === subject)
