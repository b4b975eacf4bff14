import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { generateKeyPairSync } from 'node:crypto'
import { mkdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { MeshError } from '../src/core/errors.js'
import { limits } from '../src/core/limits.js'
import { credentialsOf, tokenAlone } from '../src/identity/bearer.js'
import { createIdentity, type Identity, type IdentityConfig } from '../src/identity/identity.js'
import { parseJwks } from '../src/identity/jwks.js'
import { eventually } from './support/until.js'
import { claims, jwks, nowS, person, sign, signers, spiffe, svid, type Signer } from './support/wire/signing.js'
import { OK_TOKENS, STRANGERS, tokens } from './support/wire/tokens.js'

const keys = signers()
const others = signers()
const { ed, es } = keys

const defaults = { TRUST_DOMAIN: 'mesh.local', AUTH_AUDIENCE: 'mesh-gateway', OPERATOR_CLAIM: 'scope' }

/** A clock that a test moves. */
function clock () {
  const time = { ms: Date.now(), now: () => time.ms }
  return time
}

let files = 0
/** A JWKS file of its own. Its time is set by hand, so that two writes in one tick differ. */
function keyFile (t: Test, content: unknown) {
  const path = join(t.testdirName, `jwks-${++files}.json`)
  mkdirSync(t.testdirName, { recursive: true })
  t.teardown(() => rmSync(t.testdirName, { recursive: true, force: true }))
  let time = 1_700_000_000
  const write = (next: unknown) => {
    writeFileSync(path, typeof next === 'string' ? next : JSON.stringify(next))
    time += 10
    utimesSync(path, time, time)
  }
  write(content)
  return { path, write }
}

/** A JWKS behind a URL, whose answers the test chooses and counts. */
async function keyServer (t: Test, answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const at = { asked: 0, url: '', answer, port: 0 }
  const server = createServer((request, response) => { at.asked++; at.answer(request, response) })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => { server.closeAllConnections(); server.close() })
  at.port = (server.address() as AddressInfo).port
  at.url = `http://127.0.0.1:${at.port}/jwks.json`
  return at
}
const json = (content: unknown) => (_: IncomingMessage, response: ServerResponse) => { response.end(JSON.stringify(content)) }

const identity = async (t: Test, more: Partial<IdentityConfig> = {}, options: Parameters<typeof createIdentity>[1] = {}) =>
  await createIdentity({ ...defaults, AUTH_JWKS: keyFile(t, jwks(keys)).path, ...more }, options)

/** The principal as "role name", or the problem's name: one word for an assertion. */
async function who (identity: Identity, token: string): Promise<string> {
  try {
    const { role, name } = await identity.principalOf(tokenAlone(token))
    return `${role} ${name}`
  } catch (error) {
    if (error instanceof MeshError) return error.problem
    throw error
  }
}
const problemOf = async (promise: Promise<unknown>): Promise<MeshError> => await promise.then(() => { throw new Error('nothing was thrown') }, (error) => error)

t.test('T1 every hostile token is the same 401, and every good one is m1', async (t) => {
  const gate = await identity(t)
  const details = new Set<string>()
  for (const [name, token] of Object.entries(tokens(keys))) {
    if (OK_TOKENS.includes(name)) {
      t.equal(await who(gate, token), 'module m1', name)
    } else if (STRANGERS.includes(name)) {
      t.equal(await who(gate, token), ['SUB_BARE', 'SUB_EMPTY'].includes(name) ? 'forbidden' : 'unauthenticated', name)
    } else {
      const error = await problemOf(gate.principalOf(tokenAlone(token)))
      t.equal(error.problem, 'unauthenticated', name)
      details.add(error.message)
      t.notOk(token.length > 8 && `${error.message} ${String(error.cause)}`.includes(token), `${name}: the token stands in no text`)
    }
    t.equal(gate.cached(tokenAlone(token)) !== undefined, OK_TOKENS.includes(name), `${name}: remembered only where it is good`)
  }
  t.equal(details.size, 1, 'nobody learns from the answer what was wrong')
})

t.test('a header of the wrong shape, another spelling of base64, a token over the limit: 401', async (t) => {
  const gate = await identity(t)
  const good = svid(ed, 'module/m1')
  t.equal(await who(gate, good), 'module m1')
  const wrong = {
    'kid is a number': sign(ed, claims(spiffe('module/m1')), { header: { kid: 5 } }),
    'kid is null': sign(ed, claims(spiffe('module/m1')), { header: { kid: null } }),
    'typ is null': sign(ed, claims(spiffe('module/m1')), { header: { typ: null } }),
    'crit is empty': sign(ed, claims(spiffe('module/m1')), { header: { crit: [] } }),
    'alg in lower case': sign(ed, claims(spiffe('module/m1')), { header: { alg: 'eddsa' } }),
    'the key is for another alg': sign(ed, claims(spiffe('module/m1')), { header: { alg: 'ES256' } }),
    padded: `${good}=`,
    'with a blank': `${good} `,
    'with a line break': `${good}\n`,
    'header is a list': `${Buffer.from('[]').toString('base64url')}.${good.split('.').slice(1).join('.')}`,
    'header is no UTF-8': `${Buffer.from([0x7b, 0xff, 0x7d]).toString('base64url')}.${good.split('.').slice(1).join('.')}`,
    'too long': svid(ed, 'module/m1', { filler: 'x'.repeat(limits.tokenBytes) }),
    'sub is null': sign(ed, claims(spiffe('module/m1'), { sub: null })),
    'aud holds a number': svid(ed, 'module/m1', { aud: ['mesh-gateway', 5] }),
    'nbf is null': svid(ed, 'module/m1', { nbf: null }),
    'exp is 0': svid(ed, 'module/m1', { exp: 0 })
  }
  for (const [title, token] of Object.entries(wrong)) t.equal(await who(gate, token), 'unauthenticated', title)
  t.equal(await who(gate, sign(ed, claims(spiffe('module/m1')), { header: { typ: 'jwt' } })), 'module m1', 'typ in lower case is a JWT')
  t.equal(await who(gate, svid(ed, 'module/m1', { aud: 'mesh-gateway' })), 'module m1', 'one audience as a string')
})

t.test('a SPIFFE ID is a module, an operator or a reader, whatever its scopes say', async (t) => {
  const gate = await identity(t)
  t.equal(await who(gate, svid(ed, 'operator/alice')), 'operator alice')
  t.equal(await who(gate, svid(ed, 'reader/grafana', { scope: 'mesh:operate' })), 'reader grafana')
  t.equal(await who(gate, svid(ed, 'module/m1', { scope: 'mesh:operate mesh:read' })), 'module m1')
  for (const sub of ['SPIFFE://mesh.local/module/m1', 'spiffe:module/m1', 'spiffe://mesh.local/module', 'spiffe://mesh.local//m1',
    'spiffe://MESH.local/module/m1', 'spiffe://mesh.local/Module/m1', 'spiffe://mesh.local/module/m1/', 'spiffe://mesh.local/module/m1#x',
    'spiffe://mesh.local.example/module/m1', 'spiffe://u@mesh.local/module/m1', 'spiffe://mesh.local/toString/m1']) {
    t.equal(await who(gate, sign(ed, claims(sub, { scope: 'mesh:operate' }))), 'unauthenticated', sub)
  }
})

t.test('any other subject needs the claim: mesh:operate, mesh:read, or 403', async (t) => {
  const gate = await identity(t)
  t.equal(await who(gate, person(ed, 'alice@example.org', 'openid mesh:operate')), 'operator alice@example.org')
  t.equal(await who(gate, person(ed, 'bob@example.org', 'mesh:read')), 'reader bob@example.org')
  t.equal(await who(gate, person(ed, 'carol', 'mesh:read mesh:operate')), 'operator carol')
  for (const scope of ['openid profile', '', 'mesh:operate2', 'xmesh:operate', 'mesh:operate,mesh:read', 'MESH:OPERATE']) {
    t.equal(await who(gate, person(ed, 'eve', scope)), 'forbidden', JSON.stringify(scope))
  }
  for (const scope of [undefined, null, 5, { 'mesh:operate': true }, [['mesh:operate']]]) {
    t.equal(await who(gate, sign(ed, claims('eve', { scope }))), 'forbidden', JSON.stringify(scope))
  }
  t.equal(await who(gate, sign(ed, claims('dan', { scope: ['mesh:read'] }))), 'reader dan', 'a list of words')
  t.equal(await who(gate, sign(ed, claims('dan', { scope: 'mesh:read' }), { header: { typ: 'AT+JWT' } })), 'reader dan', "an access token is a person's")
  t.equal(await who(gate, sign(ed, claims(spiffe('operator/alice')), { header: { typ: 'at+jwt' } })), 'unauthenticated', 'and of nobody with a SPIFFE ID')

  // As Kubernetes projects it into a pod: no SPIFFE ID, so it proves no module.
  const pod = sign(ed, claims('system:serviceaccount:shop:billing', { 'kubernetes.io': { namespace: 'shop', serviceaccount: { name: 'billing' } } }))
  t.equal(await who(gate, pod), 'forbidden', 'a service account')

  const roles = await identity(t, { OPERATOR_CLAIM: 'roles' })
  t.equal(await who(roles, sign(ed, claims('dan', { roles: ['x', 'mesh:operate'], scope: 'mesh:read' }))), 'operator dan')
  t.equal(await who(roles, person(ed, 'dan', 'mesh:operate')), 'forbidden')
  const inherited = await identity(t, { OPERATOR_CLAIM: 'constructor' })
  t.equal(await who(inherited, person(ed, 'dan', 'mesh:operate')), 'forbidden', 'what every object has is no claim')
})

t.test("a person's name is safe in a log: no control characters, no half pairs, 128 characters", async (t) => {
  const gate = await identity(t)
  const name = async (sub: string) => (await gate.principalOf(tokenAlone(person(ed, sub, 'mesh:read')))).name
  t.equal(await name('al\r\nice\u0000\u001b[31m\u009b\u007f'), 'alice[31m')
  t.equal(await name('\ud800x'), 'x')
  t.equal(await name('😀'.repeat(200)), '😀'.repeat(limits.principalCharacters))
  t.equal(await who(gate, person(ed, '\n', 'mesh:read')), 'unauthenticated', 'a name of nothing else is none')
})

t.test('5 s of leeway both ways, while the principal says the end itself', async (t) => {
  const time = clock()
  time.ms = nowS() * 1000
  const gate = await identity(t, {}, { now: time.now })
  const exp = nowS() + 60
  const token = svid(ed, 'module/m1', { exp })
  t.equal((await gate.principalOf(tokenAlone(token))).expiresAt, exp * 1000)
  time.ms = (exp + 5) * 1000 - 1
  t.equal(gate.cached(tokenAlone(token))?.name, 'm1', 'within the leeway')
  t.equal(await who(gate, svid(ed, 'module/m1', { exp })), 'module m1')
  time.ms = (exp + 5) * 1000
  t.equal(gate.cached(tokenAlone(token)), undefined, 'what was remembered ends too')
  t.equal(await who(gate, token), 'unauthenticated')
  t.equal(await who(gate, svid(ed, 'module/m1', { nbf: exp + 10, exp: exp + 100 })), 'module m1', 'nbf 5 s ahead')
  t.equal(await who(gate, svid(ed, 'module/m1', { nbf: exp + 11, exp: exp + 100 })), 'unauthenticated')
  const never = await gate.principalOf(tokenAlone(svid(ed, 'module/m1', { exp: 1e300 })))
  t.equal(new Date(never.expiresAt).toISOString(), '+275760-09-13T00:00:00.000Z', 'an end beyond all time can still be printed')
})

t.test('issuer and audience are those of the configuration', async (t) => {
  const gate = await identity(t, { AUTH_ISSUER: 'https://spire.example', AUTH_AUDIENCE: 'other-gateway' })
  const good = { iss: 'https://spire.example', aud: 'other-gateway' }
  t.equal(await who(gate, svid(ed, 'module/m1', good)), 'module m1')
  t.equal(await who(gate, svid(ed, 'module/m1', { ...good, iss: 'https://spire.example/' })), 'unauthenticated')
  t.equal(await who(gate, svid(ed, 'module/m1', { ...good, iss: undefined })), 'unauthenticated')
  t.equal(await who(gate, svid(ed, 'module/m1', { ...good, aud: 'mesh-gateway' })), 'unauthenticated')
})

t.test('with OPERATOR_JWKS its keys make people alone, and the others modules alone', async (t) => {
  const OPERATOR_JWKS = keyFile(t, jwks({ es: others.es })).path
  const gate = await identity(t, { OPERATOR_JWKS, OPERATOR_ISSUER: 'https://id.example', OPERATOR_AUDIENCE: 'mesh', AUTH_ISSUER: 'https://spire.example' })
  const idp = { iss: 'https://id.example', aud: 'mesh' }
  const spire = { iss: 'https://spire.example' }
  t.equal(await who(gate, svid(ed, 'module/m1', spire)), 'module m1')
  t.equal(await who(gate, person(others.es, 'alice', 'mesh:operate', idp)), 'operator alice')
  t.equal(await who(gate, svid(others.es, 'reader/grafana', idp)), 'reader grafana')
  t.equal(await who(gate, person(others.es, 'alice', 'openid', idp)), 'forbidden')
  t.equal(await who(gate, svid(others.es, 'module/m1', idp)), 'unauthenticated', 'no module from the provider of people')
  t.equal(await who(gate, svid(others.es, 'module/m1', spire)), 'unauthenticated')
  t.equal(await who(gate, svid(ed, 'operator/alice', spire)), 'unauthenticated', "no operator from the modules' keys")
  t.equal(await who(gate, person(ed, 'alice', 'mesh:operate', spire)), 'unauthenticated')
  t.equal(await who(gate, person(ed, 'alice', 'mesh:operate', idp)), 'unauthenticated', 'nor with what the provider would say')
  t.equal(await who(gate, person(others.es, 'alice', 'mesh:operate', spire)), 'unauthenticated', 'the key decides which issuer holds')

  const sameId = await identity(t, { OPERATOR_JWKS: keyFile(t, { keys: [{ ...others.es.jwk, kid: ed.kid }] }).path })
  t.equal(await who(sameId, svid(ed, 'module/m1')), 'module m1')
  t.equal(await who(sameId, person({ ...others.es, kid: ed.kid }, 'alice', 'mesh:operate')), 'operator alice', 'two sets may use one key id')
  const shared = await identity(t, { OPERATOR_JWKS: keyFile(t, jwks(keys)).path })
  t.equal(await who(shared, svid(ed, 'module/m1')), 'module m1')
  t.equal(await who(shared, person(ed, 'alice', 'mesh:operate')), 'operator alice', 'a key in both may vouch for both')

  await t.rejects(identity(t, { OPERATOR_ISSUER: 'https://id.example' }), { name: 'ConfigError', message: /^OPERATOR_ISSUER is set, but OPERATOR_JWKS is not/ })
})

t.test('T5 credentials are found in every Authorization header and in the subprotocol, and nowhere else', async (t) => {
  const none = { tokens: [], malformed: false }
  const bad = { tokens: [], malformed: true }
  t.same(credentialsOf(['Host', 'x', 'Cookie', 'token=a.b.c', 'X-Authorization', 'Bearer a.b.c']), none)
  for (const value of ['Bearer a.b.c', 'bearer a.b.c', 'BEARER   a.b.c ']) t.same(credentialsOf(['aUTHORIZATION', value]), { tokens: ['a.b.c'], malformed: false }, value)
  for (const value of ['', 'Bearer', 'Bearer ', 'Basic bTE6eA==', 'a.b.c', 'Bearer a b', 'Bearer a,b', 'Bearer a, Bearer b', 'Bearer\ta', 'Bearera.b.c']) {
    t.same(credentialsOf(['Authorization', value]), bad, JSON.stringify(value))
  }
  t.same(credentialsOf(['Authorization', 'Bearer a', 'authorization', 'Bearer b']), { tokens: ['a', 'b'], malformed: false })
  t.same(credentialsOf(['Authorization', 'Bearer a', 'authorization', 'bearer a']), { tokens: ['a'], malformed: false }, 'the same twice is one')
  t.same(credentialsOf(['Authorization', 'Bearer a', 'Authorization', 'Basic b']), { tokens: ['a'], malformed: true })

  const offered = ['Sec-WebSocket-Protocol', 'mesh.provision.v1, bearer.a.b.c']
  t.same(credentialsOf(offered, { websocket: true }), { tokens: ['a.b.c'], malformed: false })
  t.same(credentialsOf(offered), none, 'a subprotocol counts for an upgrade alone')
  t.same(credentialsOf(['Sec-WebSocket-Protocol', 'mesh.provision.v1,bearer.'], { websocket: true }), bad)
  t.same(credentialsOf([...offered, 'Sec-WebSocket-Protocol', 'bearer.d'], { websocket: true }).tokens, ['a.b.c', 'd'])
  t.same(credentialsOf([...offered, 'Authorization', 'Bearer a.b.c'], { websocket: true }), { tokens: ['a.b.c'], malformed: false })
})

t.test('T5 two different credentials, or a good and a bad one, are 401; so is none', async (t) => {
  const gate = await identity(t)
  const m1 = svid(ed, 'module/m1')
  const m2 = svid(ed, 'module/m2')
  t.equal(await who(gate, m1), 'module m1')
  t.equal(await who(gate, m2), 'module m2')
  const bearer = (...values: string[]) => credentialsOf(values.flatMap((value) => ['Authorization', value]))
  for (const credentials of [bearer(), bearer(`Bearer ${m1}`, `Bearer ${m2}`), bearer(`Bearer ${m2}`, `Bearer ${m1}`), bearer(`Bearer ${m1}`, `Bearer ${m1.slice(0, -5)}`),
    bearer(`Bearer ${m1}`, 'Basic bTE6eA=='), bearer('Basic bTE6eA==')]) {
    t.equal((await problemOf(gate.principalOf(credentials))).problem, 'unauthenticated')
    t.equal(gate.cached(credentials), undefined, 'nor out of memory')
  }
  t.equal((await gate.principalOf(bearer(`Bearer ${m1}`, `bearer ${m1}`))).name, 'm1')
})

t.test('the key alone tells its algorithm, and only public keys for signatures of the four kinds are taken', async (t) => {
  const rsa = (bits: number) => generateKeyPairSync('rsa', { modulusLength: bits }).publicKey.export({ format: 'jwk' })
  const curve = (namedCurve: string) => generateKeyPairSync('ec', { namedCurve }).publicKey.export({ format: 'jwk' })
  const plain = es.publicKey.export({ format: 'jwk' })
  const taken = await parseJwks(JSON.stringify({
    keys: [
      { ...plain, kid: 'no-alg' }, { ...plain, kid: 'ops', key_ops: ['verify'] }, plain,
      { ...plain, kid: 'x', alg: 'ES384' }, { ...plain, kid: 'x', alg: 'HS256' }, { ...plain, kid: 'x', use: 'enc' }, { ...plain, kid: 'x', key_ops: ['sign'] },
      { ...plain, kid: 5 }, { ...plain, kid: 'x', y: 'AAAA' }, { ...es.privateKey.export({ format: 'jwk' }), kid: 'x' },
      { kty: 'oct', k: 'c2VjcmV0', kid: 'x' }, { ...rsa(1024), kid: 'x' }, { ...curve('P-521'), kid: 'x' }, { ...curve('secp256k1'), kid: 'x' },
      { ...generateKeyPairSync('x25519').publicKey.export({ format: 'jwk' }), kid: 'x' }, null, 'text', {}, []
    ]
  }))
  t.same(taken.map(({ kid, alg }) => [kid, alg]), [['no-alg', 'ES256'], ['ops', 'ES256'], [undefined, 'ES256']])
  for (const [text, why] of [['', /no JSON/], ['{"keys":', /no JSON/], ['[]', /no JWK set/], ['{"keys":{}}', /no JWK set/], ['null', /no JWK set/]] as const) {
    await t.rejects(parseJwks(text), { message: why }, text)
  }
})

t.test('in a SPIFFE bundle only the keys for JWT-SVIDs count', async (t) => {
  const gate = await identity(t, { AUTH_JWKS: keyFile(t, { keys: [{ ...ed.jwk, use: 'jwt-svid' }, { ...es.jwk, use: 'x509-svid' }, keys.rs.jwk] }).path })
  t.equal(await who(gate, svid(ed, 'module/m1')), 'module m1')
  t.equal(await who(gate, svid(es, 'module/m1')), 'unauthenticated')
  t.equal(await who(gate, svid(keys.rs, 'module/m1')), 'unauthenticated')
})

t.test('a token without a key id is tried against the keys of its algorithm, a token with one against that alone', async (t) => {
  const bare = ({ jwk }: Signer) => ({ ...jwk, kid: undefined })
  const gate = await identity(t, { AUTH_JWKS: keyFile(t, { keys: [others.ed.jwk, bare(ed), es.jwk] }).path })
  const nameless = { ...ed, kid: undefined }
  t.equal(await who(gate, svid(nameless, 'module/m1')), 'module m1', 'key without an id')
  t.equal(await who(gate, svid({ ...es, kid: undefined }, 'module/m1')), 'module m1', 'key with an id')
  t.equal(await who(gate, svid(ed, 'module/m1')), 'unauthenticated', 'its id is another key')

  const many = Array.from({ length: limits.keysTried }, () => generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' }))
  const bounded = await identity(t, { AUTH_JWKS: keyFile(t, { keys: [...many, bare(ed)] }).path })
  t.equal(await who(bounded, svid(nameless, 'module/m1')), 'unauthenticated', 'but no more of them than the limit')
})

t.test('a file that is written counts within a second, for remembered tokens too; one that is broken leaves the last good keys', async (t) => {
  const time = clock()
  const troubles: string[] = []
  const file = keyFile(t, jwks({ ed }))
  const gate = await identity(t, { AUTH_JWKS: file.path }, { now: time.now, trouble: (x) => troubles.push(x) })
  const token = svid(ed, 'module/m1')
  t.equal(await who(gate, token), 'module m1')
  t.equal(gate.cached(tokenAlone(token))?.name, 'm1')

  for (const broken of ['{"keys":[', '[]', 'x'.repeat(limits.jwksBytes + 1)]) {
    file.write(broken)
    time.ms += limits.jwksStatMs
    t.equal(await who(gate, token), 'module m1', 'the last good keys stay')
  }
  rmSync(file.path)
  time.ms += limits.jwksStatMs
  t.equal(await who(gate, token), 'module m1', 'of a file that is gone, too')
  t.equal(troubles.length, 4)
  for (const [i, why] of [/is no JSON$/, /is no JWK set/, /is larger than/, /cannot be read \(ENOENT\)$/].entries()) {
    t.match(troubles[i], why)
    t.match(troubles[i], `The keys of ${file.path} stay as they are: it `)
  }

  file.write(jwks({ es }))
  time.ms += limits.jwksStatMs
  t.equal(gate.cached(tokenAlone(token)), undefined, 'what the removed key vouched for is not even said from memory')
  t.equal(await who(gate, token), 'unauthenticated')
  t.equal(await who(gate, svid(es, 'module/m1')), 'module m1')

  const { mtime } = statSync(file.path)
  writeFileSync(`${file.path}.new`, JSON.stringify(jwks({ ed })))
  utimesSync(`${file.path}.new`, mtime, mtime)
  renameSync(`${file.path}.new`, file.path)
  time.ms += limits.jwksStatMs
  t.equal(await who(gate, token), 'module m1', 'a file that was moved into its place is another, whatever its time')
  t.equal(troubles.length, 4, 'trouble is told once')
})

t.test('an unknown key id reads a URL again at most once in 30 s, and many at once share that read', async (t) => {
  const time = clock()
  const server = await keyServer(t, json(jwks({ ed })))
  const gate = await identity(t, { AUTH_JWKS: server.url }, { now: time.now })
  t.equal(server.asked, 1)
  server.answer = json(jwks({ ed, es }))
  t.equal(await who(gate, svid(ed, 'module/m1')), 'module m1')
  t.equal(await who(gate, svid({ ...others.ed, kid: ed.kid }, 'module/m1')), 'unauthenticated')
  t.equal(await who(gate, svid({ ...others.ed, kid: undefined }, 'module/m1')), 'unauthenticated')
  t.equal(server.asked, 1, 'a known key id, or none, reads nothing')

  const hostile = Array.from({ length: 50 }, (_, i) => who(gate, svid({ ...others.ed, kid: `guess-${i}` }, 'module/m1')))
  t.same(new Set(await Promise.all(hostile)), new Set(['unauthenticated']))
  t.equal(server.asked, 2)
  t.equal(await who(gate, svid(es, 'module/m1')), 'module m1', 'the new key came with it')
  server.answer = json(jwks({ ed, es, rs: keys.rs }))
  time.ms += limits.jwksCooldownMs - 1
  t.equal(await who(gate, svid(keys.rs, 'module/m1')), 'unauthenticated')
  t.equal(server.asked, 2)
  time.ms += 1
  t.equal(await who(gate, svid(keys.rs, 'module/m1')), 'module m1')
  t.equal(server.asked, 3)
})

t.test('an unknown key id reads a file again, too, without waiting for the next look', async (t) => {
  const time = clock()
  const file = keyFile(t, jwks({ ed }))
  const gate = await identity(t, { AUTH_JWKS: file.path }, { now: time.now })
  t.equal(await who(gate, svid(ed, 'module/m1')), 'module m1')
  file.write(jwks({ ed, es }))
  t.equal(await who(gate, svid(es, 'module/m1')), 'module m1')
})

t.test('a URL is read again after 10 minutes, and a removed key ends; while it fails the last good keys stay', async (t) => {
  const time = clock()
  const troubles: string[] = []
  const server = await keyServer(t, json(jwks({ ed })))
  const gate = await identity(t, { AUTH_JWKS: server.url }, { now: time.now, trouble: (x) => troubles.push(x) })
  const token = svid(ed, 'module/m1', { exp: nowS() + 86_400 })
  t.equal(await who(gate, token), 'module m1')
  time.ms += limits.jwksRefreshMs - 1
  t.equal(gate.cached(tokenAlone(token))?.name, 'm1')

  const elsewhere = await keyServer(t, json(jwks({ es })))
  const failures: Array<[Parameters<typeof keyServer>[1], RegExp]> = [
    [(_, response) => { response.statusCode = 500; response.end() }, /status 500$/],
    [(_, response) => { response.writeHead(302, { location: elsewhere.url }); response.end() }, /status 302: redirects are not followed$/],
    [(_, response) => { response.end('<html>') }, /is no JSON$/],
    [(_, response) => { response.end(Buffer.alloc(limits.jwksBytes + 1, 32)) }, /is larger than/],
    [(request) => { request.socket.destroy() }, /cannot be read/]
  ]
  time.ms += 1
  for (const [answer, why] of failures) {
    server.answer = answer
    const before = server.asked
    t.equal(gate.cached(tokenAlone(token)), undefined)
    t.equal(await who(gate, token), 'module m1')
    t.match(troubles.at(-1), why)
    t.equal(await who(gate, token), 'module m1')
    t.equal(gate.cached(tokenAlone(token))?.name, 'm1', 'until the next try nothing waits')
    t.ok(server.asked > before, 'it was asked')
    time.ms += limits.jwksCooldownMs
  }
  t.equal(troubles.length, failures.length)
  t.equal(elsewhere.asked, 0)

  server.answer = json(jwks({ es }))
  t.equal(await who(gate, token), 'unauthenticated', 'the removed key has ended')
  t.equal(await who(gate, svid(es, 'module/m1', { exp: nowS() + 86_400 })), 'module m1')
})

t.test('a provider that hangs halts nobody: only a token of an unknown key id waits for it, and its answer counts when it comes', async (t) => {
  const time = clock()
  const server = await keyServer(t, json(jwks({ ed })))
  const gate = await identity(t, { AUTH_JWKS: server.url }, { now: time.now })
  const token = svid(ed, 'module/m1', { exp: nowS() + 86_400 })
  t.equal(await who(gate, token), 'module m1')
  const held: ServerResponse[] = []
  server.answer = (_, response) => { held.push(response) }
  const answered = async (response: ServerResponse | undefined, content: unknown) => {
    response?.end(JSON.stringify(content))
    await eventually('the answer is read', async () => await who(gate, svid(es, 'module/m1')) === 'module m1')
  }

  const stranger = who(gate, svid({ ...others.ed, kid: 'guess' }, 'module/m1'))
  await eventually('it is asked', () => held.length === 1)
  t.equal(gate.cached(tokenAlone(token))?.name, 'm1', 'who is known goes on without waiting')
  t.equal(await who(gate, svid(ed, 'module/m2')), 'module m2', 'who is new is verified')
  await answered(held[0], jwks({ ed, es }))
  t.equal(await stranger, 'unauthenticated')

  time.ms += limits.jwksRefreshMs
  t.equal(await who(gate, token), 'module m1', 'keys that are old are waited for, but not for ever')
  time.ms += limits.jwksPatienceMs
  t.equal(gate.cached(tokenAlone(token))?.name, 'm1', 'and not by each request')
  t.equal(held.length, 2, 'one read')
  held[1]?.end(JSON.stringify(jwks({ es })))
  t.ok(await eventually('a removed key ends all the same', async () => await who(gate, token) === 'unauthenticated'))
})

t.test('keys that cannot be had at the start: one line that names the variable and where, without a password', async (t) => {
  const server = await keyServer(t, (_, response) => { response.statusCode = 404; response.end() })
  const start = async (more: Partial<IdentityConfig>) => (await problemOf(identity(t, more))).message
  t.match(await start({ AUTH_JWKS: '/nowhere/jwks.json' }), /^AUTH_JWKS cannot be used: \/nowhere\/jwks\.json cannot be read \(ENOENT\)$/)
  t.match(await start({ AUTH_JWKS: keyFile(t, 'x').path }), /^AUTH_JWKS cannot be used: .* is no JSON$/)
  t.match(await start({ AUTH_JWKS: keyFile(t, { keys: [] }).path }), /^AUTH_JWKS cannot be used: .* holds no key that is taken/)
  t.match(await start({ OPERATOR_JWKS: `http://user:pass-word@127.0.0.1:${server.port}/j?key=k-e-y` }), /^OPERATOR_JWKS cannot be used: http:\/\/127\.0\.0\.1:\d+\/j answered with status 404$/)
  t.match(await start({ AUTH_JWKS: undefined }), /^AUTH_JWKS is not set/)
})

t.test('a token is verified once and then known, until other keys count', async (t) => {
  const time = clock()
  const file = keyFile(t, jwks({ ed }))
  const gate = await identity(t, { AUTH_JWKS: file.path }, { now: time.now })
  const token = svid(ed, 'module/m1')
  t.equal(gate.cached(tokenAlone(token)), undefined, 'unknown at first')
  const principal = await gate.principalOf(tokenAlone(token))
  t.equal(gate.cached(tokenAlone(token)), principal)
  t.equal(await gate.principalOf(tokenAlone(token)), principal, 'the very same')
  t.equal(gate.cached(tokenAlone(`${token.slice(0, -2)}AA`)), undefined, 'another token is another')
  file.write(jwks({ ed, es }))
  time.ms += limits.jwksStatMs
  t.equal(gate.cached(tokenAlone(token)), undefined)
  t.not(await gate.principalOf(tokenAlone(token)), principal, 'verified anew')
})

t.test('what lives goes on while its key may vouch for its role, and a set without keys takes none away', async (t) => {
  const time = clock()
  const troubles: string[] = []
  const file = keyFile(t, jwks({ ed, es }))
  const people = keyFile(t, jwks({ es: others.es }))
  const gate = await identity(t, { AUTH_JWKS: file.path, OPERATOR_JWKS: people.path }, { now: time.now, trouble: (x) => troubles.push(x) })
  const proved = async (token: string) => await gate.principalOf(tokenAlone(token))
  const [byEd, byEs, alice] = [await proved(svid(ed, 'module/m1')), await proved(svid(es, 'module/m1')), await proved(svid(others.es, 'operator/alice'))]
  const living = async () => {
    await gate.refresh()
    return [byEd, byEs, alice].map((one) => gate.lives(one))
  }
  t.same(await living(), [true, true, true])
  t.notOk(byEd.keys.includes(ed.kid))
  t.notSame(byEd.keys, byEs.keys)

  for (const text of [{ keys: [] }, { keys: [{ kty: 'oct', k: 'AAAA' }] }, '{']) {
    file.write(text)
    t.same(await living(), [true, true, true])
  }
  t.match(troubles, [/holds no key that is taken/, /is no JSON$/])

  file.write({ keys: [{ ...es.jwk, kid: 'another' }, { ...ed.jwk, kid: undefined }] })
  t.same(await living(), [true, true, true], 'the same keys under other ids')
  t.equal(await who(gate, svid(ed, 'module/m1')), 'unauthenticated', 'though a token that names the old id is none any more')
  file.write(jwks({ ed, theirs: others.es }))
  people.write(jwks({ mine: es }))
  t.same(await living(), [true, false, false], 'a key in the other set vouches for other roles')
})

t.test('a connection that lives has a URL read every 10 minutes and no oftener, and a file looked at each time', async (t) => {
  const time = clock()
  const server = await keyServer(t, json(jwks({ ed })))
  const gate = await identity(t, { AUTH_JWKS: server.url }, { now: time.now })
  const token = svid(ed, 'module/m1', { exp: nowS() + 86_400 })
  const principal = await gate.principalOf(tokenAlone(token))
  server.answer = json(jwks({ es }))
  for (; time.ms < Date.now() + limits.jwksRefreshMs - 2000; time.ms += limits.beatMs) await gate.refresh()
  t.equal(server.asked, 1)
  t.ok(gate.lives(principal))
  time.ms += 5000
  await gate.refresh()
  t.equal(server.asked, 2)
  t.notOk(gate.lives(principal))
  server.answer = (_, response) => { response.statusCode = 500; response.end() }
  time.ms += limits.jwksRefreshMs
  for (const until = time.ms + limits.jwksCooldownMs - 1; time.ms < until; time.ms += limits.beatMs) await gate.refresh()
  t.equal(server.asked, 3, 'one that fails is not asked at each beat')

  const file = keyFile(t, jwks({ ed }))
  const local = await identity(t, { AUTH_JWKS: file.path }, { now: time.now })
  const same = await local.principalOf(tokenAlone(token))
  file.write(jwks({ es }))
  await local.refresh()
  t.notOk(local.lives(same), 'however short ago it was looked at')
})
