/** A JWK set → the keys that may verify a token, each with the one algorithm that it is for. */
import { hash, KeyObject } from 'node:crypto'
import { importJWK, type CryptoKey, type JWK } from 'jose'

export const algorithms = ['EdDSA', 'ES256', 'ES384', 'RS256'] as const
export type Algorithm = typeof algorithms[number]

export interface VerifyKey {
  kid: string | undefined
  alg: Algorithm
  key: CryptoKey
  /** A digest of the public key itself: the same under another id, and however the set writes it. */
  thumbprint: string
}

const smallestRsaBits = 2048

/** The algorithm a key is for, told by the key alone: a token's header has no say. Undefined for a key that is not taken. */
function algorithmOf ({ kty, crv, n }: JWK): Algorithm | undefined {
  if (kty === 'OKP' && crv === 'Ed25519') return 'EdDSA'
  if (kty === 'EC' && crv === 'P-256') return 'ES256'
  if (kty === 'EC' && crv === 'P-384') return 'ES384'
  if (kty === 'RSA' && typeof n === 'string' && Buffer.from(n, 'base64url').length * 8 >= smallestRsaBits) return 'RS256'
  return undefined
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value)

/** In a SPIFFE bundle only the keys for JWT-SVIDs count; elsewhere those for signatures, or for nothing in particular. */
function counts ({ use }: JWK, bundle: boolean): boolean {
  return bundle ? use === 'jwt-svid' : use === undefined || use === 'sig'
}

async function imported (jwk: JWK): Promise<VerifyKey | undefined> {
  const alg = algorithmOf(jwk)
  // A private key in a set of public ones is a mistake of whoever made it, and everybody may know it by now.
  if (alg === undefined || 'd' in jwk || (jwk.alg !== undefined && jwk.alg !== alg)) return undefined
  if (jwk.kid !== undefined && typeof jwk.kid !== 'string') return undefined
  if (jwk.key_ops !== undefined && !(Array.isArray(jwk.key_ops) && jwk.key_ops.includes('verify'))) return undefined
  const { kty, crv, x, y, n, e } = jwk
  try {
    const key = await importJWK({ kty, crv, x, y, n, e } as JWK, alg) as CryptoKey
    return { kid: jwk.kid, alg, key, thumbprint: hash('sha256', KeyObject.from(key).export({ type: 'spki', format: 'der' }), 'base64url') }
  } catch {
    return undefined
  }
}

/**
 * The usable keys of a JWK set's text; those of other kinds, symmetric, private or broken ones are left out. Throws an
 * error whose message completes "…, but it" where the text is no JWK set.
 */
export async function parseJwks (text: string): Promise<VerifyKey[]> {
  let parsed: unknown
  try { parsed = JSON.parse(text) } catch { throw new Error('is no JSON') }
  if (!isRecord(parsed) || !Array.isArray(parsed.keys)) throw new Error('is no JWK set: expected an object with a list "keys"')
  const jwks = parsed.keys.filter(isRecord) as JWK[]
  const bundle = jwks.some(({ use }) => use === 'jwt-svid')
  const keys = await Promise.all(jwks.filter((jwk) => counts(jwk, bundle)).map(imported))
  return keys.filter((key) => key !== undefined)
}
