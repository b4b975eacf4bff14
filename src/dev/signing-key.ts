/** The key that `token` signs with: whoever can read its data folder can sign. A gateway trusts it where AUTH_JWKS names its published half. */
import { randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { calculateJwkThumbprint, exportJWK, generateKeyPair, importJWK, SignJWT, type CryptoKey, type JWK } from 'jose'
import { ConfigError, type Environment } from '../config.js'
import { messageOf } from '../core/errors.js'
import { kept, readIfThere } from './kept.js'

export const jwksFile = (dataDir: string): string => join(dataDir, 'jwks.json')
const keyFile = (dataDir: string): string => join(dataDir, 'signing-key.json')

async function newKey (): Promise<string> {
  const { privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true })
  const jwk = await exportJWK(privateKey)
  return `${JSON.stringify({ ...jwk, kid: await calculateJwkThumbprint(jwk), alg: 'EdDSA', use: 'sig' }, null, 2)}\n`
}

/** The key of a data folder, made where there is none; the public half beside it is written when it is not the key's. */
export async function signingKey (dataDir: string): Promise<{ kid: string, key: CryptoKey }> {
  const path = keyFile(dataDir)
  const text = await kept(path, newKey)
  try {
    const { d, ...published } = JSON.parse(text) as JWK
    const key = await importJWK({ ...published, d }, 'EdDSA') as CryptoKey
    const jwks = `${JSON.stringify({ keys: [published] }, null, 2)}\n`
    if (await readIfThere(jwksFile(dataDir)) !== jwks) await writeFile(jwksFile(dataDir), jwks)
    return { kid: published.kid ?? '', key }
  } catch (error) {
    throw new ConfigError(`${path} holds no private Ed25519 JWK (${messageOf(error)}): delete it, and a new one is made`)
  }
}

/** Whom a token is for (DESIGN section 8). */
export interface Subject { role: 'module' | 'operator' | 'reader', name: string }

type Issuing = Pick<Environment, 'DATA_DIR' | 'TRUST_DOMAIN' | 'AUTH_AUDIENCE' | 'AUTH_ISSUER'>

/** A JWT-SVID, signed with the key of the data folder, that ends `ttlS` seconds from now. */
export async function mintToken (config: Issuing, { role, name }: Subject, ttlS: number): Promise<string> {
  const { kid, key } = await signingKey(config.DATA_DIR)
  const now = Math.floor(Date.now() / 1000)
  const token = new SignJWT()
    .setProtectedHeader({ alg: 'EdDSA', kid, typ: 'JWT' })
    .setSubject(`spiffe://${config.TRUST_DOMAIN}/${role}/${name}`)
    .setAudience(config.AUTH_AUDIENCE)
    .setIssuedAt(now)
    .setExpirationTime(now + ttlS)
    .setJti(randomUUID())
  if (config.AUTH_ISSUER !== undefined) token.setIssuer(config.AUTH_ISSUER)
  return token.sign(key)
}
