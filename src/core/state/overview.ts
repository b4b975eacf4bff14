/** The port of the state alone: it speaks of a picture, which the other ports know nothing of. */
import type { BucketName, Entry } from '../ports.js'
import type { Picture } from './picture.js'

/** What is read of the buckets for those who look at the mesh's state; never for a take-in. */
export interface Overview {
  /** What the buckets hold, as of a moment ago. Rejects with `unavailable` while that is not known. */
  picture (): Promise<Picture>
  /** What was written under a key, as long as the bucket keeps it, the oldest first, from the stream's leader. */
  history (bucket: BucketName, key: string): Promise<Entry[]>
}
