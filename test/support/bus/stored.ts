import type { BucketName } from '../../../src/core/ports.js'
import type { Mesh } from './buckets.js'
import { decode } from './client.js'

/** The texts that a bucket's stream still holds under a key, message by message: its history, as anybody could read it. */
export async function stored ({ jsm, prefix }: Mesh, bucket: BucketName, key: string): Promise<string[]> {
  const stream = `KV_${prefix}${bucket}`
  const { first_seq: first, last_seq: last } = (await jsm.streams.info(stream)).state
  const texts: string[] = []
  for (let seq = first; seq <= last; seq++) {
    const found = await jsm.streams.getMessage(stream, { seq }).catch(() => undefined)
    if (found?.subject === `$KV.${prefix}${bucket}.${key}`) texts.push(decode(found.data))
  }
  return texts
}
