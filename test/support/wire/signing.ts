/** Signing keys of each kind that is taken, and tokens signed with them in any way a header can say. */
import { constants, createHmac, generateKeyPairSync, sign as signBytes, type JsonWebKey, type KeyObject } from 'node:crypto'

export interface Signer {
  alg: string
  kid: string
  privateKey: KeyObject
  publicKey: KeyObject
  /** The public key as a JWKS has it. */
  jwk: JsonWebKey & { kid: string, alg: string, use: string }
}

/** What signs a token: a key under some id, a shared secret, or both left out where nothing signs. */
export interface SigningKey { alg?: string, kid?: string, privateKey?: KeyObject, secret?: string }

function signer (alg: string, kid: string, { privateKey, publicKey }: { privateKey: KeyObject, publicKey: KeyObject }): Signer {
  return { alg, kid, privateKey, publicKey, jwk: { ...publicKey.export({ format: 'jwk' }), kid, alg, use: 'sig' } }
}

/** A key of each kind that the gateway takes. */
export const signers = () => ({
  ed: signer('EdDSA', 'ed-1', generateKeyPairSync('ed25519')),
  es: signer('ES256', 'es-1', generateKeyPairSync('ec', { namedCurve: 'P-256' })),
  es384: signer('ES384', 'es-2', generateKeyPairSync('ec', { namedCurve: 'P-384' })),
  rs: signer('RS256', 'rs-1', generateKeyPairSync('rsa', { modulusLength: 2048 }))
})
export type Signers = ReturnType<typeof signers>

/** The JWKS that a gateway reads to accept these keys. */
export const jwks = (keys: Record<string, Signer>): { keys: Array<Signer['jwk']> } => ({ keys: Object.values(keys).map((key) => key.jwk) })

/** base64url of a text, of bytes, or of anything else's JSON. */
export const base64url = (content: unknown): string =>
  Buffer.from(typeof content === 'string' || Buffer.isBuffer(content) ? content as string : JSON.stringify(content)).toString('base64url')

const hashes: Record<string, string> = { 256: 'sha256', 384: 'sha384', 512: 'sha512' }

function signature (key: SigningKey, alg: string, bytes: Buffer): Buffer {
  const hash = hashes[alg.slice(2)] ?? 'sha256'
  if (alg.startsWith('HS')) return createHmac(hash, key.secret ?? '').update(bytes).digest()
  if (!key.privateKey) return Buffer.alloc(0)
  if (alg === 'EdDSA') return signBytes(null, bytes, key.privateKey)
  if (alg.startsWith('RS')) return signBytes(hash, bytes, key.privateKey)
  if (alg.startsWith('ES')) return signBytes(hash, bytes, { key: key.privateKey, dsaEncoding: 'ieee-p1363' })
  return signBytes(hash, bytes, { key: key.privateKey, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 })
}

/** A token as told: `claims` that are a text go as they are, `alg` is how it is signed, `header` what the header says besides. */
export function sign (key: SigningKey, claims: unknown, { alg = key.alg ?? '', header = {} }: { alg?: string, header?: object } = {}): string {
  const said = { alg, typ: 'JWT', ...(key.kid === undefined ? {} : { kid: key.kid }), ...header }
  const signed = `${base64url(said)}.${base64url(claims)}`
  return `${signed}.${base64url(signature(key, alg, Buffer.from(signed)))}`
}

export const nowS = (): number => Math.floor(Date.now() / 1000)
export const spiffe = (path: string, domain = 'mesh.local'): string => `spiffe://${domain}/${path}`

/** The claims of a good token, valid for ten minutes, with `more` over them. */
export const claims = (sub: string, more: object = {}): Record<string, unknown> =>
  ({ sub, aud: ['mesh-gateway'], iat: nowS(), exp: nowS() + 600, ...more })

/** A good JWT-SVID: `svid(key, 'module/m1')`, `'operator/alice'`, `'reader/grafana'`. */
export const svid = (key: SigningKey, who: string, more: object = {}): string => sign(key, claims(spiffe(who), more))
/** A person's token, as an OpenID provider makes it: `person(key, 'alice@example.org', 'openid mesh:operate')`. */
export const person = (key: SigningKey, sub: string, scope: string, more: object = {}): string => sign(key, claims(sub, { scope, ...more }))
