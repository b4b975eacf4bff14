/** `RATE_LIMIT`: requests a second of one principal, over HTTP and on its sockets alike. */
import { LRUCache } from 'lru-cache'
import { limits } from '../core/limits.js'
import type { Principal } from '../identity/principal.js'
import { Allowance } from './allowance.js'

export class Rates {
  readonly #allowances = new LRUCache<string, Allowance>({ max: limits.ratedPrincipals })

  /** `perSecond` 0: no limit. A second's worth may come at once. */
  constructor (private readonly perSecond: number) {}

  /** Takes one request of a principal; answers how many seconds to wait where there is none left. */
  take ({ role, name }: Principal, now = Date.now()): number | undefined {
    if (this.perSecond === 0) return undefined
    const who = `${role} ${name}`
    let allowance = this.#allowances.get(who)
    if (!allowance) this.#allowances.set(who, allowance = new Allowance(this.perSecond, this.perSecond, now))
    return allowance.take(now)
  }
}
