/**
 * Bad credentials of an address. Only who sends another bad one is told to wait: a valid credential passes from any address, since many
 * clients may share one (DESIGN section 6). A request without any credential costs no check and is not counted.
 */
import { isIPv6 } from 'node:net'
import { LRUCache } from 'lru-cache'
import { limits } from '../core/limits.js'
import { Allowance } from './allowance.js'

/** Who counts as one: an IPv4 address, or the network of an IPv6 address (/64), in which a host has as many addresses as it likes. */
export function networkOf (address: string): string {
  const [plain = ''] = address.split('%')
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(plain)?.[1]
  if (mapped !== undefined) return mapped
  if (!isIPv6(plain)) return plain
  const [left = '', right] = plain.toLowerCase().split('::')
  const head = left === '' ? [] : left.split(':')
  const tail = right === undefined || right === '' ? [] : right.split(':')
  // A tail in the form of IPv4 stands for two groups.
  const tailGroups = tail.length + (tail.at(-1)?.includes('.') ? 1 : 0)
  const all = right === undefined ? head : [...head, ...Array<string>(Math.max(0, 8 - head.length - tailGroups)).fill('0'), ...tail]
  return `${all.slice(0, 4).map((group) => parseInt(group, 16).toString(16)).join(':')}::/64`
}

export class Failures {
  readonly #allowances = new LRUCache<string, Allowance>({ max: limits.failingAddresses })

  /** Counts a bad credential; answers how many seconds to wait where there were too many. */
  count (address: string | undefined, now = Date.now()): number | undefined {
    const who = networkOf(address ?? '')
    let allowance = this.#allowances.get(who)
    if (!allowance) this.#allowances.set(who, allowance = new Allowance(limits.failedAuthentications / 60, limits.failedAuthentications, now))
    return allowance.take(now)
  }
}
