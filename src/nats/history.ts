import type { JetStreamManager, NatsConnection, StoredMsg } from 'nats'
import { NatsError } from 'nats'
import { MeshError, messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { BucketName, Entry } from '../core/ports.js'
import { isMarker, streamOf, subjectOf } from './buckets.js'

const decoder = new TextDecoder()
const noMessage = 10037

/** What was written under a key, the oldest first, each from the stream's leader. Rejects with `unavailable`. */
export async function readHistory (nc: NatsConnection, prefix: string, bucket: BucketName, key: string): Promise<Entry[]> {
  const found: Entry[] = []
  try {
    const jsm = await nc.jetstreamManager({ checkAPI: false, timeout: limits.jetstreamMs })
    for (let from = 1; found.length < limits.recordsKept;) {
      const message = await next(jsm, prefix, bucket, key, from)
      if (!message) break
      const deleted = isMarker(message.header)
      found.push({ key, revision: message.seq, deleted, text: deleted ? '' : decoder.decode(message.data) })
      from = message.seq + 1
    }
  } catch (error) {
    throw new MeshError('unavailable', `the history of ${bucket} ${key} cannot be read now: ${messageOf(error)}`, { cause: error })
  }
  return found
}

/** The first message of a key at a sequence or after it. */
async function next (jsm: JetStreamManager, prefix: string, bucket: BucketName, key: string, seq: number): Promise<StoredMsg | undefined> {
  // A stored message is handed out by the stream's leader, this way of asking among it; the library's type knows it for direct gets alone.
  const query = { seq, next_by_subj: subjectOf(prefix, bucket, key) } as unknown as { seq: number }
  try {
    return await jsm.streams.getMessage(streamOf(prefix, bucket), query) ?? undefined
  } catch (error) {
    if (error instanceof NatsError && error.api_error?.err_code === noMessage) return undefined
    throw error
  }
}
