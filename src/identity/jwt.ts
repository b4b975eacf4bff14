/** A bearer token → its principal (DESIGN section 8). */
import { hash } from 'node:crypto'
import { compactVerify } from 'jose'
import { LRUCache } from 'lru-cache'
import { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { Now } from '../core/ports.js'
import { checkStanding, principalFrom, Refusal, type Claims, type Rules } from './claims.js'
import { algorithms, type Algorithm } from './jwks.js'
import type { KeySet } from './keys.js'
import { unauthenticated, type Principal } from './principal.js'

/** A key set, and what its keys may vouch for. */
export interface Authority { keys: KeySet, rules: Rules }

interface Header { alg: Algorithm, kid: string | undefined, typ: string | undefined }

const form = /^([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/
const types = [undefined, 'jwt', 'jose', 'at+jwt']
const utf8 = new TextDecoder('utf-8', { fatal: true })

function jsonObject (bytes: Uint8Array, what: string): Claims {
  let parsed: unknown
  try { parsed = JSON.parse(utf8.decode(bytes)) } catch { /* refused below */ }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) throw new Refusal(`${what} is no JSON object`)
  return parsed as Claims
}

/** What the header may say. It chooses among the keys that are trusted, and nothing else in it is followed. */
function headerOf (token: string): Header {
  if (token.length > limits.tokenBytes) throw new Refusal('too long')
  const part = form.exec(token)?.[1]
  if (part === undefined) throw new Refusal('not of the form of a JWT')
  const header = jsonObject(Buffer.from(part, 'base64url'), 'the header')
  const alg = algorithms.find((x) => x === header.alg)
  if (alg === undefined) throw new Refusal('an algorithm that is not taken')
  if ('crit' in header) throw new Refusal('asks for an extension')
  if (header.kid !== undefined && typeof header.kid !== 'string') throw new Refusal('kid is no string')
  if (header.typ !== undefined && typeof header.typ !== 'string') throw new Refusal('typ is no string')
  const typ = header.typ?.toLowerCase()
  if (!types.includes(typ)) throw new Refusal('a token of another type')
  return { alg, kid: header.kid, typ }
}

/** Verifies tokens, and remembers the verified ones until they end or other keys count. */
export class Tokens {
  readonly #authorities: readonly Authority[]
  readonly #now: Now
  readonly #verified = new LRUCache<string, Principal>({ max: limits.verifiedTokens })
  /** Moves with each change of a key set: what was verified before it must not be remembered after it. */
  #era = 0
  readonly #eras = new WeakMap<Principal, number>()

  /** `forget` is to be called when a key set changed: see KeySetOptions. */
  constructor (authorities: readonly Authority[], now: Now = Date.now) {
    this.#authorities = authorities
    this.#now = now
  }

  forget (): void {
    this.#era++
    this.#verified.clear()
  }

  /** The principal of a token that was verified before and still stands, without waiting; undefined: ask `verify`. */
  verifyCached (token: string): Principal | undefined {
    return this.#recall(this.#digest(token))
  }

  /**
   * Whether a principal that a token proved before still stands: no key set has changed or may have since, and it has not ended. For
   * whoever remembers that the same token is shown again.
   */
  stands (principal: Principal): boolean {
    for (const { keys } of this.#authorities) if (!keys.isCurrent()) return false
    return this.#eras.get(principal) === this.#era && this.#now() < principal.expiresAt + limits.clockLeewayS * 1000
  }

  /** The principal of a token. Rejects with a MeshError: `unauthenticated`, or `forbidden` for a person without a role. */
  async verify (token: string): Promise<Principal> {
    try {
      // Before the digest is made: the length is the sender's choice.
      const header = headerOf(token)
      const digest = this.#digest(token)
      const known = this.#recall(digest)
      if (known) return known
      await Promise.all(this.#authorities.map(({ keys }) => keys.current()))
      const era = this.#era
      const principal = await this.#judge(token, header)
      if (era === this.#era) {
        this.#verified.set(digest, principal)
        this.#eras.set(principal, era)
      }
      return principal
    } catch (error) {
      if (error instanceof Refusal) throw unauthenticated(error.message)
      throw error
    }
  }

  // The digest and not the token: ten thousand tokens would be tens of megabytes of credentials in memory.
  #digest (token: string): string {
    return hash('sha256', token, 'base64')
  }

  #recall (digest: string): Principal | undefined {
    for (const { keys } of this.#authorities) if (!keys.isCurrent()) return undefined
    const principal = this.#verified.get(digest)
    if (principal === undefined) return undefined
    if (this.#now() < principal.expiresAt + limits.clockLeewayS * 1000) return principal
    this.#verified.delete(digest)
    return undefined
  }

  /** Looks at the keys now, for connections that live; resolves once they are as current as they can be. */
  async refresh (): Promise<void> {
    await Promise.all(this.#authorities.map(({ keys }) => keys.refresh()))
  }

  /** Whether a key may vouch for a role by the keys that were read last. */
  vouches (thumbprint: string, role: Principal['role']): boolean {
    for (const { keys, rules } of this.#authorities) if ((role === 'module' ? rules.modules : rules.people) && keys.has(thumbprint)) return true
    return false
  }

  /** The key set whose key verifies the signature decides who it may be. */
  async #judge (token: string, header: Header): Promise<Principal> {
    const { kid } = header
    if (kid !== undefined && !this.#authorities.some(({ keys }) => keys.knows(kid))) {
      await Promise.all(this.#authorities.map(({ keys }) => keys.lookFor(kid)))
    }
    let refusal: unknown = new Refusal('no trusted key signed it')
    for (const { keys, rules } of this.#authorities) {
      const signed = await this.#signed(token, header, keys)
      if (signed === undefined) continue
      const { claims, by } = signed
      try {
        return principalFrom(claims, rules, header.typ, { expiresAt: checkStanding(claims, rules, this.#now()), keys: [by] })
      } catch (error) {
        // One key may stand in both sets: then the other may vouch for what this one may not.
        if (!(error instanceof Refusal || error instanceof MeshError)) throw error
        refusal = error
      }
    }
    throw refusal
  }

  /** The claims and the thumbprint of the key, where one of this set signed them. */
  async #signed (token: string, { kid, alg }: Header, keys: KeySet): Promise<{ claims: Claims, by: string } | undefined> {
    for (const { key, thumbprint } of keys.candidates(kid, alg)) {
      let payload: Uint8Array
      try {
        payload = (await compactVerify(token, key, { algorithms: [alg] })).payload
      } catch {
        continue
      }
      return { claims: jsonObject(payload, 'the payload'), by: thumbprint }
    }
    return undefined
  }
}
