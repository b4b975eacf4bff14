/** Tokens for module m1 that try to be more than they are, by the names under which the rows ask for them (case T1). */
import { randomUUID, sign as signBytes } from 'node:crypto'
import { base64url, claims, nowS, sign, signers, spiffe, type Signers } from './signing.js'

/** Those that are good. */
export const OK_TOKENS = ['EXP_2S_AGO', 'NBF_IN_2S', 'IAT_IN_2S', 'AUD_LIST', 'TYP_NONE', 'TYP_JOSE', 'ES', 'ES384', 'RS']
/** Those signed well, for a subject that is nobody here: 403, or 401 where it has the shape of a SPIFFE ID. */
export const STRANGERS = [
  'BARE', 'EMPTY', 'STAR', 'WILD', 'SPACE', 'CRLF', 'DOTS', 'UPPER', 'SLASH', 'NOBODY', 'QUERY', 'PCT', 'DOMAIN', 'PORT', 'KIND'
].map((name) => `SUB_${name}`)

const me = spiffe('module/m1')
const mine = (more: object = {}) => claims(me, more)

/** No signature at all, whatever the header calls that. */
function unsigned ({ ed }: Signers): Record<string, string> {
  const none = (header: object) => `${base64url({ typ: 'JWT', kid: ed.kid, ...header })}.${base64url(mine())}.`
  return {
    NONE: none({ alg: 'none' }),
    NONE_CAPS: none({ alg: 'nOnE' }),
    ALG_EMPTY: none({ alg: '' }),
    ALG_MISSING: none({}),
    ALG_PROTO: none({ alg: '__proto__' })
  }
}

/** The public key, which everybody has, as a shared secret. */
function publicAsSecret ({ ed }: Signers): Record<string, string> {
  const pem = ed.publicKey.export({ type: 'spki', format: 'pem' }).toString()
  const hs = (secret: string, header: object = {}) => sign({ secret, kid: ed.kid }, mine(), { alg: 'HS256', header })
  return {
    HS_PUB: hs(pem),
    HS_PUB_TRIM: hs(pem.trim()),
    HS_JWK: hs(JSON.stringify(ed.jwk)),
    HS_SAYS_RS: hs(pem, { alg: 'RS256' }),
    HS_SAYS_SAME: hs(pem, { alg: ed.alg })
  }
}

/** A good token, damaged. */
function damaged ({ ed }: Signers): Record<string, string> {
  const good = sign(ed, mine())
  const [header, payload, signature] = good.split('.') as [string, string, string]
  return {
    CUT: good.slice(0, -5),
    NO_SIG: `${header}.${payload}.`,
    TWO_PARTS: `${header}.${payload}`,
    FOUR_PARTS: `${good}.${signature}`,
    REPAYLOAD: `${header}.${base64url(mine({ sub: spiffe('module/m2') }))}.${signature}`,
    PAYLOAD_LIST: sign(ed, '[]'),
    PAYLOAD_NULL: sign(ed, 'null'),
    PAYLOAD_TEXT: sign(ed, 'not json'),
    EMPTY: '',
    JUNK: 'a.b.c',
    NUL: 'abc%00'
  }
}

/** A header that points at the key to use, or at what else the token is. */
function headers ({ ed }: Signers): Record<string, string> {
  const attacker = signers().ed
  const says = (header: object) => sign(ed, mine(), { header })
  return {
    CRIT: says({ crit: ['x'], x: 1 }),
    KID_PATH: says({ kid: '../../etc/passwd' }),
    KID_URL: says({ kid: 'http://127.0.0.1:9/k' }),
    KID_PROTO: says({ kid: '__proto__' }),
    KID_LONG: says({ kid: 'k'.repeat(8000) }),
    KID_RANDOM: sign(attacker, mine(), { header: { kid: randomUUID() } }),
    KEY_FOREIGN: sign({ ...attacker, kid: ed.kid }, mine()),
    JWK_INSIDE: sign(attacker, mine(), { header: { jwk: attacker.jwk } }),
    JKU: sign(attacker, mine(), { header: { jku: 'http://127.0.0.1:9/jwks.json' } }),
    TYP_NONE: says({ typ: undefined }),
    TYP_JOSE: says({ typ: 'JOSE' }),
    TYP_AT: says({ typ: 'at+jwt' }),
    TYP_OTHER: says({ typ: 'secevent+jwt' })
  }
}

/** Times and audiences: odd, over, not yet. */
function bounds ({ ed }: Signers): Record<string, string> {
  const now = nowS()
  const says = (more: object) => sign(ed, mine(more))
  return {
    EXP_2S_AGO: says({ exp: now - 2 }),
    EXP_10M_AGO: says({ exp: now - 600 }),
    EXP_NONE: says({ exp: undefined }),
    EXP_TEXT: says({ exp: '9999999999' }),
    EXP_NEG: says({ exp: -1 }),
    EXP_NULL: says({ exp: null }),
    EXP_LIST: says({ exp: [now + 600] }),
    EXP_1E400: sign(ed, JSON.stringify(mine()).replace(/"exp":\d+/, '"exp":1e400')),
    NBF_IN_2S: says({ nbf: now + 2 }),
    NBF_IN_10M: says({ nbf: now + 600 }),
    NBF_TEXT: says({ nbf: 'x' }),
    IAT_IN_2S: says({ iat: now + 2 }),
    AUD_LIST: says({ aud: ['other', 'mesh-gateway'] }),
    AUD_OTHER: says({ aud: 'other' }),
    AUD_PART: says({ aud: 'mesh-gateway-2' }),
    AUD_EMPTY: says({ aud: [] }),
    AUD_NONE: says({ aud: undefined }),
    AUD_OBJECT: says({ aud: { 'mesh-gateway': true } })
  }
}

/** Subjects that are nobody, or that would do harm in a subject of the bus. */
function subjects ({ ed }: Signers): Record<string, string> {
  const says = (sub: unknown) => sign(ed, mine({ sub }))
  const at = (path: string, domain?: string) => says(spiffe(path, domain))
  return {
    SUB_NONE: says(undefined),
    SUB_NUMBER: says(5),
    SUB_LIST: says([me]),
    SUB_EMPTY: says(''),
    SUB_BARE: says('m1'),
    SUB_STAR: at('module/*'),
    SUB_WILD: at('module/m1.>'),
    SUB_SPACE: at('module/m1 x'),
    SUB_CRLF: at('module/x 0\r\n\r\nPUB admin.x 2\r\nhi\r\nPUB y'),
    SUB_DOTS: at('module/a.b'),
    SUB_UPPER: at('module/M1'),
    SUB_SLASH: at('module/m1/x'),
    SUB_NOBODY: at('module/'),
    SUB_QUERY: at('module/m1?x'),
    SUB_PCT: at('module/%6d1'),
    SUB_DOMAIN: at('module/m1', 'other.example'),
    SUB_PORT: at('module/m1', 'mesh.local:443'),
    SUB_KIND: at('node/m1')
  }
}

/** The other algorithms: those that are taken, and their neighbours that are not. */
function algorithms ({ es, es384, rs }: Signers): Record<string, string> {
  const body = sign(es, mine()).replace(/\.[^.]*$/, '')
  return {
    ES: sign(es, mine()),
    // JOSE wants the two numbers side by side; this has them in DER.
    ES_DER: `${body}.${base64url(signBytes('sha256', Buffer.from(body), es.privateKey))}`,
    ES384: sign(es384, mine()),
    RS: sign(rs, mine()),
    RS512: sign(rs, mine(), { alg: 'RS512' }),
    PS256: sign(rs, mine(), { alg: 'PS256' })
  }
}

/** All of them, by name. Those in neither OK_TOKENS nor STRANGERS are 401. */
export const tokens = (keys: Signers): Record<string, string> => ({
  ...unsigned(keys), ...publicAsSecret(keys), ...damaged(keys), ...headers(keys), ...bounds(keys), ...subjects(keys), ...algorithms(keys)
})
