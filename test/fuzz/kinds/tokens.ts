/** Tokens: good ones with edits, and ones made of odd headers, odd claims and the wrong keys. */
import fc from 'fast-check'
import { http } from '../../support/wire/http.js'
import { base64url, nowS, sign, signers, spiffe, type Signers } from '../../support/wire/signing.js'
import { kind } from '../kind.js'
import { anyJson, mostlyNot, mutatedText } from '../mutate.js'

/** Keys of nobody here, under the ids of those that count. */
const foreign = signers()

const sub = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(spiffe('module/m1'), spiffe('module/m2'), spiffe('operator/alice'), 'alice@example.org') },
  { weight: 1, arbitrary: mutatedText(fc.constantFrom(spiffe('module/m1'), spiffe('module/m2')), 2) },
  { weight: 1, arbitrary: anyJson() }
)
const aud = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom<unknown>('mesh-gateway', ['mesh-gateway'], ['a', 'mesh-gateway']) },
  { weight: 1, arbitrary: fc.constantFrom<unknown>('mesh-gateway2', 'Mesh-Gateway', [], ['a'], [['mesh-gateway']], { 'mesh-gateway': 1 }, undefined) },
  { weight: 1, arbitrary: anyJson() }
)
/** Seconds from now, or something else. */
const time = (...good: unknown[]): fc.Arbitrary<unknown> => fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...good) }, { weight: 1, arbitrary: fc.constantFrom<unknown>(-600, -100, 'x', null, [600], {}, true, undefined) }
)

interface Drawn {
  claims: { sub: unknown, aud: unknown, exp: unknown, nbf: unknown, extra: unknown }
  header: Record<string, unknown>
  key: keyof Signers
  alg: string | undefined
  signedBy: 'us' | 'foreign' | 'secret' | 'nobody'
  /** Edits of the text, as what it becomes is drawn from the text itself: a place, how much goes, what comes. */
  edit: { at: number, cut: number, put: string } | undefined
}

const anyDrawn: fc.Arbitrary<Drawn> = fc.record({
  claims: fc.record({
    sub, aud, exp: time(600, 60, 1e6), nbf: time(undefined, -10, undefined), extra: fc.oneof(fc.constant({}), fc.record({ scope: fc.constantFrom<unknown>('mesh:operate', 'mesh:read x', 'other', ['mesh:read'], 7) }))
  }),
  header: fc.oneof({ weight: 3, arbitrary: fc.constant({}) }, {
    weight: 1,
    arbitrary: fc.record({
      typ: fc.constantFrom<unknown>('JWT', 'jwt', 'JOSE', 'at+jwt', 'x', 7, null),
      kid: fc.constantFrom<unknown>('ed-1', 'rs-1', 'none', '', 7, null, '__proto__', '../x'),
      alg: fc.constantFrom<unknown>('EdDSA', 'none', 'HS256', 'RS256', 'ES256', 'PS256', '', null),
      crit: fc.constantFrom<unknown>(['exp'], [], 'x'),
      b64: fc.boolean(),
      jku: fc.constant('http://127.0.0.1:9/'),
      jwk: fc.constant(foreign.ed.jwk),
      zip: fc.constant('DEF')
    }, { requiredKeys: [] })
  }),
  key: fc.constantFrom('ed', 'ed', 'es', 'es384', 'rs'),
  alg: mostlyNot(fc.constantFrom('HS256', 'RS256', 'EdDSA', 'none', 'PS256')),
  signedBy: fc.oneof({ weight: 5, arbitrary: fc.constant('us' as const) }, { weight: 1, arbitrary: fc.constantFrom('foreign' as const, 'secret' as const, 'nobody' as const) }),
  edit: fc.option(fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }), cut: fc.integer({ min: 0, max: 3 }), put: fc.oneof(fc.string({ maxLength: 3 }), fc.constantFrom('.', '=', 'A', '_'))
  }), { nil: undefined, freq: 2 })
})

/** What is right in every part. */
const right: Drawn = {
  claims: { sub: spiffe('module/m1'), aud: 'mesh-gateway', exp: 600, nbf: undefined, extra: {} }, header: {}, key: 'ed', alg: undefined, signedBy: 'us', edit: undefined
}
const parts = Object.keys(right) as Array<keyof Drawn>

/** Wrong in some parts and right in the others: what is wrong in all would be refused for the first of them. */
const input: fc.Arbitrary<Drawn> = fc.tuple(anyDrawn, fc.subarray(parts, { minLength: 2 }))
  .map(([drawn, good]) => good.reduce((of, part) => ({ ...of, [part]: right[part] }), drawn))

function make ({ claims: { sub, aud, exp, nbf, extra }, header, key, alg, signedBy }: Drawn, keys: Signers): string | undefined {
  const now = nowS()
  const at = (of: unknown): unknown => typeof of === 'number' ? now + of : of
  const payload = { sub, aud, exp: at(exp), nbf: at(nbf), iat: now, ...(extra as object) }
  const { kid, publicKey } = keys[key]
  const by = signedBy === 'us'
    ? keys[key]
    : signedBy === 'foreign'
      ? { ...foreign[key], kid }
      : signedBy === 'secret' ? { kid, secret: publicKey.export({ type: 'spki', format: 'pem' }).toString() } : { kid }
  try {
    return sign(by, payload, { header, alg: signedBy === 'secret' ? 'HS256' : signedBy === 'nobody' ? 'none' : alg })
  } catch { return undefined } // this key signs nothing of this name
}

type Taken = 'm1' | 'm2' | 'nobody' | 'somebody'

/** Who a token that nobody edited makes, by the rules of DESIGN section 8 as they are written there. */
function whose ({ claims: { sub, aud, exp, nbf }, header, key, alg, signedBy }: Drawn, keys: Signers): Taken {
  const said = { alg: alg ?? keys[key].alg, kid: keys[key].kid, typ: 'JWT', ...header }
  if (signedBy !== 'us' || said.alg !== keys[key].alg || (alg !== undefined && alg !== keys[key].alg)) return 'nobody'
  if (said.kid !== keys[key].kid || 'crit' in said) return 'nobody'
  if (typeof said.typ !== 'string' || !['jwt', 'jose', 'at+jwt'].includes(said.typ.toLowerCase())) return 'nobody'
  if (typeof exp !== 'number' || exp < 0 || (nbf !== undefined && (typeof nbf !== 'number' || nbf > 0))) return 'nobody'
  const audiences = [aud].flat()
  if (!audiences.every((one) => typeof one === 'string') || !audiences.includes('mesh-gateway')) return 'nobody'
  if (typeof sub !== 'string') return 'nobody'
  if (/^spiffe:/i.test(sub)) {
    if (said.typ.toLowerCase() === 'at+jwt') return 'nobody'
    const module = /^spiffe:\/\/mesh\.local\/module\/([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$/.exec(sub)?.[1]
    return module === 'm1' || module === 'm2' ? module : module !== undefined || sub === spiffe('operator/alice') ? 'somebody' : 'nobody'
  }
  return 'somebody'
}

export const tokensKind = kind<Drawn>({
  promise: 'only a token that a trusted key signed, with right claims, is taken, and only for whom it names',
  runs: 900,
  input,
  async attempt (stage, drawn) {
    const made = make(drawn, stage.keys)
    if (made === undefined) return 'not to be made'
    const { edit } = drawn
    const from = edit ? Math.floor(edit.at * made.length) : 0
    const token = edit ? made.slice(0, from) + edit.put.replace(/[^!-~]/g, '') + made.slice(from + edit.cut) : made
    const { status, body } = await http(stage.port, 'GET', '/provision/config/port', { token })
    // 429: a bad credential, too, from an address that has sent too many.
    const got: Taken = body === '8080' ? 'm1' : body === '9090' ? 'm2' : status === 401 || status === 429 ? 'nobody' : 'somebody'
    if (body.includes(base64url(token)) || body.includes(token)) throw new Error('the token was said back')
    const whoseIt = whose(drawn, stage.keys)
    // A person without a name that can be written down is nobody; which characters those are is tested elsewhere.
    const owner = whoseIt === 'somebody' && got === 'nobody' && !/^[ -~]+$/.test(String(drawn.claims.sub)) ? got : whoseIt
    // The last character of a signature has bits that mean nothing; whoever the token is taken for, it is nobody else.
    const sameSignature = token.split('.').map((part) => Buffer.from(part, 'base64url').toString('hex')).join() ===
      made.split('.').map((part) => Buffer.from(part, 'base64url').toString('hex')).join()
    const allowed = token === made ? [owner] : sameSignature ? [owner, 'nobody'] : ['nobody']
    if (!allowed.includes(got)) throw new Error(`taken for ${got} (${status} ${body.slice(0, 100)}), and it is of ${allowed.join(' or ')}: ${token}`)
    return got
  }
})
