/** Who is asking: what a request shows for itself → one principal (DESIGN section 8). */
import { ConfigError, type Environment } from '../config.js'
import { MeshError, messageOf } from '../core/errors.js'
import type { Now } from '../core/ports.js'
import type { Anchors } from './anchors.js'
import type { Credentials } from './bearer.js'
import { Certificates, type ShownCertificate } from './certificates.js'
import type { Rules } from './claims.js'
import { Tokens, type Authority } from './jwt.js'
import { KeySet } from './keys.js'
import { unauthenticated, type Principal } from './principal.js'

export interface Identity {
  /** The one principal that the credentials prove. Rejects with a MeshError: `unauthenticated` or `forbidden`. */
  principalOf (credentials: Credentials): Promise<Principal>
  /** The same without waiting, where it is known already; undefined: ask `principalOf`. */
  cached (credentials: Credentials): Principal | undefined
  /** Whether what was proved before still stands, for whoever remembers that the very same was shown again. */
  stands (principal: Principal): boolean
  /** Has the keys looked at, for connections that live; to be called about once a second. Resolves once they are as current as can be. */
  refresh (): Promise<void>
  /** Whether the keys that a principal stands on still count. Its end is for whoever holds it to keep. */
  lives (principal: Principal): boolean
  /** Judges client certificates; undefined where none are asked for. */
  readonly certificates: Certificates | undefined
}

export type IdentityConfig = Pick<Environment,
  'TRUST_DOMAIN' | 'AUTH_JWKS' | 'AUTH_ISSUER' | 'AUTH_AUDIENCE' | 'OPERATOR_JWKS' | 'OPERATOR_ISSUER' | 'OPERATOR_AUDIENCE' | 'OPERATOR_CLAIM'>

interface Options {
  /** Told when a JWKS cannot be read again and its last good keys stay; a sentence for the log. */
  trouble?: (sentence: string) => void
  now?: Now
  /** Of client certificates, where they are asked for. */
  anchors?: Anchors | undefined
}

/** Reads the keys and stands ready. Rejects with a ConfigError, one line, where a JWKS is missing, unreadable or empty. */
export async function createIdentity (config: IdentityConfig, { trouble, now = Date.now, anchors }: Options = {}): Promise<Identity> {
  const changed = () => tokens.forget()
  const open = async (variable: 'AUTH_JWKS' | 'OPERATOR_JWKS', location: string): Promise<KeySet> => {
    try {
      return await KeySet.open(location, { changed, trouble, now })
    } catch (error) {
      throw new ConfigError(`${variable} cannot be used: ${messageOf(error)}`)
    }
  }
  const tokens = new Tokens(await authorities(config, open), now)
  const rules = { trustDomain: config.TRUST_DOMAIN, people: config.OPERATOR_JWKS === undefined }
  return new Provers(tokens, anchors && new Certificates(anchors, rules, now))
}

async function authorities (config: IdentityConfig, open: (variable: 'AUTH_JWKS' | 'OPERATOR_JWKS', location: string) => Promise<KeySet>): Promise<Authority[]> {
  const { AUTH_JWKS, OPERATOR_JWKS, TRUST_DOMAIN: trustDomain, OPERATOR_CLAIM: operatorClaim } = config
  if (AUTH_JWKS === undefined) throw new ConfigError('AUTH_JWKS is not set, but it is needed: file or URL of the keys that sign credentials')
  const separate = OPERATOR_JWKS !== undefined
  const rules: Rules = {
    trustDomain, operatorClaim, issuer: config.AUTH_ISSUER, audience: config.AUTH_AUDIENCE, modules: true, people: !separate
  }
  const found: Authority[] = [{ keys: await open('AUTH_JWKS', AUTH_JWKS), rules }]
  if (separate) {
    const audience = config.OPERATOR_AUDIENCE ?? config.AUTH_AUDIENCE
    found.push({
      keys: await open('OPERATOR_JWKS', OPERATOR_JWKS),
      rules: { trustDomain, operatorClaim, issuer: config.OPERATOR_ISSUER, audience, modules: false, people: true }
    })
  } else {
    // Without keys of their own these would check nothing, and whoever set them believes they do.
    for (const name of ['OPERATOR_ISSUER', 'OPERATOR_AUDIENCE'] as const) {
      if (config[name] !== undefined) throw new ConfigError(`${name} is set, but OPERATOR_JWKS is not: it says what tokens of those keys must hold`)
    }
  }
  return found
}

class Provers implements Identity {
  /** What a token and a certificate together proved, by that; both still have to stand. */
  readonly #both = new WeakMap<Principal, { token: Principal, certificate: Principal }>()

  constructor (private readonly tokens: Tokens, readonly certificates: Certificates | undefined) {}

  async principalOf ({ tokens: sent, malformed, certificate }: Credentials): Promise<Principal> {
    if (malformed) throw unauthenticated('a credential that cannot be one')
    const [token, another] = sent
    // Which of the two is meant is not ours to guess.
    if (another !== undefined) throw unauthenticated('two different ones were sent')
    if (certificate === undefined) {
      if (token === undefined) throw unauthenticated('none was sent')
      return await this.tokens.verify(token)
    }
    const shown = this.#ofCertificate(certificate)
    return token === undefined ? shown : this.#agreed(await this.#ofToken(token), shown)
  }

  cached ({ tokens: sent, malformed, certificate }: Credentials): Principal | undefined {
    return sent.length === 1 && !malformed && certificate === undefined ? this.tokens.verifyCached(sent[0]!) : undefined
  }

  stands (principal: Principal): boolean {
    if (!this.certificates) return this.tokens.stands(principal)
    const both = this.#both.get(principal)
    if (both) return this.tokens.stands(both.token) && this.certificates.stands(both.certificate)
    return this.tokens.stands(principal)
  }

  refresh (): Promise<void> { return this.tokens.refresh() }

  lives ({ role, keys }: Principal): boolean {
    for (const key of keys) if (!this.tokens.vouches(key, role) && !this.certificates?.anchors.has(key)) return false
    return true
  }

  #ofCertificate (certificate: ShownCertificate): Principal {
    if ('refusal' in certificate) throw unauthenticated(certificate.refusal)
    if (!this.certificates?.stands(certificate)) throw unauthenticated('a certificate that expired, or whose anchor is gone')
    return certificate
  }

  async #ofToken (token: string): Promise<Principal> {
    try {
      return await this.tokens.verify(token)
    } catch (error) {
      // A token of nobody here does not agree with a certificate of somebody.
      if (error instanceof MeshError) throw unauthenticated(`beside a certificate, a token that is not taken: ${messageOf(error.cause ?? error)}`)
      throw error
    }
  }

  #agreed (token: Principal, certificate: Principal): Principal {
    const { role, name } = token
    if (role !== certificate.role || name !== certificate.name) throw unauthenticated('a token and a certificate of two different ones')
    const principal = { role, name, expiresAt: Math.min(token.expiresAt, certificate.expiresAt), keys: [...token.keys, ...certificate.keys] }
    this.#both.set(principal, { token, certificate })
    return principal
  }
}
