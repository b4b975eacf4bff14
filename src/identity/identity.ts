/** Who is asking: what a request shows for itself → one principal (DESIGN section 8). */
import { ConfigError, type Environment } from '../config.js'
import { messageOf } from '../core/errors.js'
import type { Now } from '../core/ports.js'
import type { Credentials } from './bearer.js'
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
}

export type IdentityConfig = Pick<Environment,
  'TRUST_DOMAIN' | 'AUTH_JWKS' | 'AUTH_ISSUER' | 'AUTH_AUDIENCE' | 'OPERATOR_JWKS' | 'OPERATOR_ISSUER' | 'OPERATOR_AUDIENCE' | 'OPERATOR_CLAIM'>

interface Options {
  /** Told when a JWKS cannot be read again and its last good keys stay; a sentence for the log. */
  trouble?: (sentence: string) => void
  now?: Now
}

/** Reads the keys and stands ready. Rejects with a ConfigError, one line, where a JWKS is missing, unreadable or empty. */
export async function createIdentity (config: IdentityConfig, { trouble, now = Date.now }: Options = {}): Promise<Identity> {
  const changed = () => tokens.forget()
  const open = async (variable: 'AUTH_JWKS' | 'OPERATOR_JWKS', location: string): Promise<KeySet> => {
    try {
      return await KeySet.open(location, { changed, trouble, now })
    } catch (error) {
      throw new ConfigError(`${variable} cannot be used: ${messageOf(error)}`)
    }
  }
  const tokens = new Tokens(await authorities(config, open), now)
  return identityOn(tokens)
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

/** Another kind of credential (a client certificate) joins here: it is counted with the tokens, and proves its own principal. */
function identityOn (tokens: Tokens): Identity {
  return {
    async principalOf ({ tokens: sent, malformed }) {
      if (malformed) throw unauthenticated('a credential that cannot be one')
      const [token, another] = sent
      if (token === undefined) throw unauthenticated('none was sent')
      // Which of the two is meant is not ours to guess.
      if (another !== undefined) throw unauthenticated('two different ones were sent')
      return await tokens.verify(token)
    },
    stands: (principal) => tokens.stands(principal),
    cached ({ tokens: sent, malformed }) {
      return sent.length === 1 && !malformed ? tokens.verifyCached(sent[0]!) : undefined
    }
  }
}
