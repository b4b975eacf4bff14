/** `RATE_LIMIT`: requests a second of one principal, over HTTP and on its sockets alike. */
import { LRUCache } from 'lru-cache'
import { limits } from '../core/limits.js'
import type { Principal } from '../identity/principal.js'

interface Bucket { tokens: number, at: number }

export class Rates {
  readonly #buckets = new LRUCache<string, Bucket>({ max: limits.ratedPrincipals })

  /** `perSecond` 0: no limit. A second's worth may come at once. */
  constructor (private readonly perSecond: number) {}

  /** Takes one request of a principal; answers how many seconds to wait where there is none left. */
  take ({ role, name }: Principal, now = Date.now()): number | undefined {
    if (this.perSecond === 0) return undefined
    const who = `${role} ${name}`
    const bucket = this.#buckets.get(who) ?? { tokens: this.perSecond, at: now }
    bucket.tokens = Math.min(this.perSecond, bucket.tokens + (now - bucket.at) / 1000 * this.perSecond)
    bucket.at = now
    this.#buckets.set(who, bucket)
    if (bucket.tokens < 1) return Math.ceil((1 - bucket.tokens) / this.perSecond)
    bucket.tokens--
    return undefined
  }
}
