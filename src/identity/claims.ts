/** A verified token's claims → who it is of (DESIGN section 8). What is thrown as a Refusal is a 401, its text for the log alone. */
import { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { isName } from '../core/names.js'
import type { Principal } from './principal.js'

/** Why a token is not taken; every one of them reaches the user as the same 401. */
export class Refusal extends Error {}

export type Claims = Record<string, unknown>

/** What one key set may vouch for, and what its tokens must say. */
export interface Rules {
  trustDomain: string
  issuer: string | undefined
  audience: string
  operatorClaim: string
  /** Whether its keys make modules, and whether they make operators and readers. */
  modules: boolean
  people: boolean
}

const roles = ['module', 'operator', 'reader'] as const

// The last instant a Date can hold: an `exp` beyond it is as good as for ever, and must not break a time that is printed.
const endOfTimeMs = 8.64e15

/** Checks times, audience and issuer; the credential's own end in ms. */
export function checkStanding (claims: Claims, { issuer, audience }: Rules, nowMs: number): number {
  const { exp, nbf, iss, aud } = claims
  const now = nowMs / 1000
  if (typeof exp !== 'number' || !Number.isFinite(exp) || exp <= 0) throw new Refusal('exp is missing or no time')
  if (now >= exp + limits.clockLeewayS) throw new Refusal('expired')
  if (nbf !== undefined && (typeof nbf !== 'number' || !Number.isFinite(nbf))) throw new Refusal('nbf is no time')
  if (nbf !== undefined && now < nbf - limits.clockLeewayS) throw new Refusal('not valid yet')
  const audiences: unknown[] = Array.isArray(aud) ? aud : [aud]
  if (!audiences.every((x) => typeof x === 'string') || !audiences.includes(audience)) throw new Refusal('for another audience')
  if (issuer !== undefined && iss !== issuer) throw new Refusal('of another issuer')
  return Math.min(exp * 1000, endOfTimeMs)
}

/** What a token's signature proves besides its claims: its own end in ms, and the key that made it. */
export type Proof = Pick<Principal, 'expiresAt' | 'keys'>

/** Who the claims are of. `typ` is the token's, in lower case; an access token (`at+jwt`) is a person's alone. */
export function principalFrom (claims: Claims, rules: Rules, typ: string | undefined, proof: Proof): Principal {
  const { sub } = claims
  if (typeof sub !== 'string') throw new Refusal('sub is missing')
  if (!/^spiffe:/i.test(sub)) return person(sub, claims, rules, proof)
  if (typ === 'at+jwt') throw new Refusal('an access token with a SPIFFE ID')
  const [role, name] = spiffeParts(sub, rules.trustDomain)
  if (!(role === 'module' ? rules.modules : rules.people)) throw new Refusal(`its key makes no ${role}`)
  return { role, name, ...proof }
}

/** Role and name of a SPIFFE ID; throws a Refusal where it is of another domain, or names nobody here. */
export function spiffeParts (sub: string, trustDomain: string): [Principal['role'], string] {
  const start = `spiffe://${trustDomain}/`
  const [role, name, ...rest] = sub.startsWith(start) ? sub.slice(start.length).split('/') : []
  const known = roles.find((x) => x === role)
  if (known === undefined || !isName(name) || rest.length > 0) throw new Refusal('a SPIFFE ID that names nobody here')
  return [known, name]
}

// Control characters, and halves of surrogate pairs: neither belongs in a log line or a record.
const unprintable = /[\p{Cc}\p{Cs}]/gu

function person (sub: string, claims: Claims, { people, operatorClaim }: Rules, proof: Proof): Principal {
  if (!people) throw new Refusal('its key makes modules alone')
  const claim = Object.hasOwn(claims, operatorClaim) ? claims[operatorClaim] : undefined
  const words: unknown[] = typeof claim === 'string' ? claim.split(/\s+/) : Array.isArray(claim) ? claim : []
  const role = words.includes('mesh:operate') ? 'operator' : words.includes('mesh:read') ? 'reader' : undefined
  if (role !== undefined) {
    const name = [...sub.replace(unprintable, '')].slice(0, limits.principalCharacters).join('')
    if (name === '') throw new Refusal('sub names nobody')
    return { role, name, ...proof }
  }
  throw new MeshError('forbidden', `The token is valid, but its claim "${operatorClaim}" holds neither mesh:operate nor mesh:read: ask whoever gives out tokens for one of them.`)
}
