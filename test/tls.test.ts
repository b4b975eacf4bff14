/** The gateway's port over TLS, clients that show certificates, and the files of both taken anew (DESIGN section 8). */
import { once } from 'node:events'
import { renameSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { connect as connectNet } from 'node:net'
import { join } from 'node:path'
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls'
import t from 'tap'
import { ConfigError, loadConfig } from '../src/config.js'
import { limits } from '../src/core/limits.js'
import { openTls } from '../src/http/tls.js'
import { uriNames } from '../src/identity/certificates.js'
import { gatewayOnFixture, fixture } from './support/fixture.js'
import { startGateway, type Gateway } from './support/gateway.js'
import { HOST, freePort, temporaryFolder } from './support/machine.js'
import { atEnd, type Owner } from './support/owner.js'
import { eventually, until } from './support/until.js'
import { bearer, request, responses } from './support/wire/bytes.js'
import { authority, certificate, serverCertificate, type Certificate, type Wanted } from './support/wire/certificates.js'
import { http } from './support/wire/http.js'
import { readRows, rowVars, runRow } from './support/wire/rows.js'
import { nowS, person, signers, spiffe, svid } from './support/wire/signing.js'
import { sse } from './support/wire/sse.js'
import { ws } from './support/wire/websocket.js'

const keys = signers()
const m1 = svid(keys.ed, 'module/m1')
const m2 = svid(keys.ed, 'module/m2')
const target = '/provision/config/port'

const root = authority({ commonName: 'root' })
const between = authority({ commonName: 'between' }, root)
const other = authority({ commonName: 'other' })
const own = serverCertificate(root)

const shows = ({ chain, cert, key }: Certificate): ConnectionOptions => ({ cert: chain === '' ? cert : chain, key })
const of = (who: string, more: Wanted = {}, issuer = root): Certificate => certificate({ uri: [spiffe(who)], ...more }, issuer)

interface Files { cert: string, key: string, ca: string, write (pair: Certificate): void, trust (...authorities: Certificate[]): void }

/** The three files of a gateway, with its own certificate and the root of clients. */
function files (t: Owner): Files {
  const folder = temporaryFolder(t, 'tls')
  const [cert, key, ca] = ['cert.pem', 'key.pem', 'ca.pem'].map((name) => join(folder, name)) as [string, string, string]
  const made: Files = {
    cert,
    key,
    ca,
    write (pair) {
      writeFileSync(cert, pair.chain)
      writeFileSync(key, pair.key)
    },
    trust (...authorities) {
      // As a mounted file is exchanged: moved into its place whole.
      writeFileSync(`${ca}.new`, authorities.map((one) => one.cert).join(''))
      renameSync(`${ca}.new`, ca)
    }
  }
  made.write(own)
  made.trust(root)
  return made
}

const variables = ({ cert, key, ca }: Files): Record<string, string> => ({ TLS_CERT: cert, TLS_KEY: key, TLS_CLIENT_CA: ca })

const statusOf = async ({ port }: Gateway, client?: Certificate, token?: string): Promise<number> =>
  (await http(port, 'GET', target, { token, tls: client && shows(client) })).status

/** A connection on which requests follow one another, as an agent that keeps it alive makes them. */
async function keptAlive (t: Owner, port: number, options: ConnectionOptions) {
  const socket: TLSSocket = connectTls({ ca: root.cert, port, host: HOST, ...options })
  atEnd(t, () => socket.destroy())
  let bytes = Buffer.alloc(0)
  let session: Buffer | undefined
  socket.on('data', (data: Buffer) => { bytes = Buffer.concat([bytes, data]) })
  socket.on('session', (made: Buffer) => { session = made })
  socket.on('error', () => { /* close follows */ })
  await once(socket, 'secureConnect')
  return {
    socket,
    /** A ticket to resume the session with; it comes with the first bytes. */
    session: () => eventually('a session ticket', () => session),
    async get (token?: string): Promise<number> {
      bytes = Buffer.alloc(0)
      socket.write(request('GET', target, { Connection: 'keep-alive', ...bearer(token) }))
      return await eventually('an answer', () => {
        const [answer] = responses(bytes)
        return answer && answer.data.length >= Number(answer.headers['content-length']) ? answer.status : 0
      })
    }
  }
}

t.test('over TLS', async (t) => {
  const opsPort = await freePort()
  const file = files(t)
  const { gateway, prov } = await gatewayOnFixture(t, { keys, tls: { ca: root.cert }, env: { ...variables(file), OPS_PORT: String(opsPort) } })
  const { port } = gateway
  // Begun before all else, since it has to grow old.
  const agedAt = (nowS() + 3) * 1000
  const shortLived = of('module/m1', { notAfter: agedAt })
  const aging = await keptAlive(t, port, shows(shortLived))
  const agingWatch = await ws(t, port, { tls: shows(shortLived) })
  const agingToken = await ws(t, port, { token: svid(keys.ed, 'module/m1', { exp: agedAt / 1000 }) })
  t.equal(await aging.get(), 200)

  await t.test('T and W rows hold as they do without', async (t) => {
    const vars = rowVars(keys)
    let run = 0
    for (const row of readRows(join(import.meta.dirname, 'rows.json'))) {
      if (!/^[TW]\d/.test(row.id)) continue
      run++
      t.equal(await runRow(t, port, row, vars), undefined, row.id)
    }
    t.ok(run > 80, 'the rows were found')
  })

  await t.test('the port speaks TLS 1.2 and 1.3 and nothing else, the port for probes plain HTTP', async (t) => {
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) t.equal((await http(port, 'GET', target, { token: m1, tls: { minVersion: version, maxVersion: version } })).status, 200)
    const old = await http(port, 'GET', target, { token: m1, tls: { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } })
    t.equal(old.status, 0)
    t.equal((await http(opsPort, 'GET', '/readyz')).status, 200)
    const plain = connectPlain(t, port)
    plain.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    await once(plain, 'close')
    // Records that are cut, too long, of no type, or no greeting; and one who goes in the middle of it.
    for (const hex of ['1603010005', '16030100050100000100', '160301ffff', 'ff', '150301000202', '80', '00'.repeat(600), '16030300040e000000']) {
      const garbled = connectPlain(t, port)
      garbled.end(Buffer.from(hex, 'hex'))
      await once(garbled, 'close')
    }
    const gone = connectPlain(t, port)
    gone.write(Buffer.from('1603010200010001fc0303', 'hex'), () => gone.resetAndDestroy())
    await once(gone, 'close')
    t.equal((await http(port, 'GET', target, { token: m1 })).status, 200, 'and goes on after one who spoke plainly')
    const page = await ws(t, port, { token: m1, headers: { Origin: `https://localhost:${port}` } })
    t.equal(page.status, 101, 'its own origin is https')
    t.equal((await ws(t, port, { token: m1, headers: { Origin: `http://localhost:${port}` } })).status, 403)
  })

  await t.test('a certificate proves a module, an operator or a reader, by the one URI in it', async (t) => {
    t.equal(await statusOf(gateway, of('module/m1')), 200)
    t.equal(await statusOf(gateway, of('module/m1', {}, between)), 200, 'by way of an authority between')
    t.equal(await statusOf(gateway, of('module/m1', { dns: ['m1.example', 'x, URI:spiffe://mesh.local/module/m2'], ip: [[10, 0, 0, 1]] })), 200, 'names of other kinds are not looked at')
    t.equal(await statusOf(gateway, of('module/m1', { notAfter: Date.UTC(9999, 11, 31, 23, 59, 59) })), 200, 'until the end of what can be written')
    t.equal(await statusOf(gateway, of('operator/alice')), 403)
    const plan = async (who: string) => (await http(port, 'GET', '/modules/m1/take-in', { tls: shows(of(who)) })).status
    t.equal(await plan('operator/alice'), 200)
    t.equal(await plan('reader/grafana'), 200)
    t.equal(await plan('module/m1'), 403)

    const client = await ws(t, port, { tls: shows(of('module/m2')) })
    t.match(await client.note('session.hello'), { params: { module: 'm2' } })
    t.match(await client.watch('config', 'port'), { result: { value: 9090 } })
    const stream = await sse(t, port, target, { tls: shows(of('module/m1')) })
    t.equal((await eventually('the value', () => stream.named('value')[0])).json.value, 8080)
  })

  await t.test('a certificate that is sent and does not hold is the one 401, even beside a good token', async (t) => {
    const now = Date.now()
    const signedByALeaf = of('module/m1', {}, of('module/m2'))
    const bad: Record<string, Certificate> = {
      'of an authority that is not trusted': of('module/m1', {}, other),
      'signed by itself': certificate({ uri: [spiffe('module/m1')] }),
      'signed by one that is no authority': signedByALeaf,
      expired: of('module/m1', { notAfter: now - 60_000 }),
      'not valid yet': of('module/m1', { notBefore: now + 60_000 }),
      'an authority itself': of('module/m1', { ca: true }),
      'without names': certificate({}, root),
      'with a DNS name alone': certificate({ dns: ['module/m1'] }, root),
      'with two URIs': certificate({ uri: [spiffe('module/m1'), spiffe('module/m1')] }, root),
      'with another URI beside': certificate({ uri: ['https://m1.example', spiffe('module/m1')] }, root),
      'of another trust domain': certificate({ uri: [spiffe('module/m1', 'other.example')] }, root),
      'with a path that is none': of('node/m1'),
      'with a name that is none': of('module/M1'),
      'with a comma in its URI': certificate({ uri: ['spiffe://mesh.local/module/m1, DNS:x'] }, root),
      'with a NUL in its URI': certificate({ uri: ['spiffe://mesh.local/module/m1\0'] }, root),
      'with a NUL and more': certificate({ uri: ['spiffe://mesh.local/module/m1\0.example'] }, root),
      'with an escape in its URI': certificate({ uri: ['spiffe://mesh.local/module/%6d1'] }, root),
      'with quotes in its URI': certificate({ uri: ['"spiffe://mesh.local/module/m1"'] }, root),
      'with an endless URI': certificate({ uri: [spiffe(`module/${'m'.repeat(20_000)}`)] }, root),
      'with an empty URI': certificate({ uri: [''] }, root),
      'with a thousand URIs': certificate({ uri: Array(1000).fill(spiffe('module/m1')) }, root),
      'with a URI that is no text': certificate({ uri: [Buffer.from([0xff, 0xfe, 0x80]).toString('latin1')] }, root)
    }
    const { body } = await http(port, 'GET', target)
    for (const [name, client] of Object.entries(bad)) {
      for (const token of [undefined, m1]) {
        const answer = await http(port, 'GET', target, { token, tls: shows(client) })
        t.same([answer.status, answer.body], [401, body], `${name}${token === undefined ? '' : ', beside a good token'}`)
      }
      t.equal((await ws(t, port, { token: m1, tls: shows(client) })).status, 401, `${name}, on the watch`)
    }
  })

  await t.test('a certificate and a token together count where they agree, until the earlier end', async (t) => {
    const client = of('module/m1')
    t.equal(await statusOf(gateway, client, m1), 200)
    for (const [name, token] of Object.entries({
      'of another module': m2, 'of an operator': svid(keys.ed, 'operator/m1'), bad: m1.slice(0, -5), 'of nobody': person(keys.ed, 'eve', 'openid')
    })) t.equal(await statusOf(gateway, client, token), 401, `a token ${name}`)
    t.equal(await statusOf(gateway, undefined, m1), 200, 'a token alone does, too')
    const expiresIn = async (token: string, tls: ConnectionOptions) => (await (await ws(t, port, { token, tls })).note('session.hello'))?.params.expiresIn as number
    t.ok(await expiresIn(svid(keys.ed, 'module/m1', { exp: nowS() + 120 }), shows(client)) <= 120)
    const soon = of('module/m1', { notAfter: (nowS() + 60) * 1000 })
    t.ok(await expiresIn(m1, shows(soon)) <= 60)

    const watch = await ws(t, port, { token: svid(keys.ed, 'module/m1', { exp: nowS() + 30 }), tls: shows(soon) })
    const renewed = await watch.call('auth.renew', { token: m1 })
    t.ok(renewed.result.expiresIn > 30 && renewed.result.expiresIn <= 60, 'a later token is held by the certificate')
    t.match(await watch.call('auth.renew', { token: m2 }), { error: { code: -32004 } })
  })

  await t.test('a session is resumed with the certificate that it was made with, and without one it proves nobody', async (t) => {
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const options = { minVersion: version, maxVersion: version }
      for (const issuer of [root, between]) {
        const first = await keptAlive(t, port, { ...options, ...shows(of('module/m1', {}, issuer)) })
        t.equal(await first.get(), 200)
        const again = await keptAlive(t, port, { ...options, session: await first.session() })
        t.ok(again.socket.isSessionReused(), `${version}, ${issuer.commonName}`)
        t.equal(await again.get(), 200)
        t.equal(await again.get(m2), 401, 'and is still the one who it was')
      }
      const nobody = await keptAlive(t, port, options)
      t.equal(await nobody.get(), 401)
      const again = await keptAlive(t, port, { ...options, ...shows(of('module/m1')), session: await nobody.session() })
      t.ok(again.socket.isSessionReused())
      t.equal(await again.get(), 401, 'a certificate that was not shown is not looked at')
    }
  })

  await t.test('T3: a certificate ends on the connection that it opened, as a token does', async (t) => {
    for (const [what, one] of Object.entries({ agingWatch, agingToken })) {
      t.match(await one.note('session.expiring', 10_000), { params: { expiresIn: /^[0-3]$/ } }, what)
      t.ok(await one.untilClosed(10_000), what)
      t.equal(one.closeCode, 4401, what)
    }
    t.ok(await until(async () => await aging.get() === 401, 15_000, 100), 'a request on the kept connection is refused, too')
    t.ok(Date.now() >= agedAt + limits.clockLeewayS * 1000, 'but not within the leeway')
  })

  await t.test("the gateway's own certificate is taken anew; what lives goes on, half a pair changes nothing", async (t) => {
    const watch = await ws(t, port, { token: m1 })
    await watch.watch('config', 'port')
    const seen = async (): Promise<string | undefined> => {
      const { socket } = await keptAlive(t, port, {})
      const { fingerprint256 } = socket.getPeerCertificate()
      socket.destroy()
      return fingerprint256
    }
    const before = await seen()
    const next = serverCertificate(root)
    writeFileSync(file.cert, next.chain)
    const told = () => gateway.logged(/could not be taken anew/)
    await eventually('the mismatch is told', () => told().length > 0)
    t.match(told()[0], { why: /^TLS_KEY holds the key of another certificate/ })
    writeFileSync(file.key, next.key.slice(0, 80))
    await eventually('the broken key is told', () => told().length > 1)
    t.match(told()[1], { why: /^TLS_KEY holds no private key/ })
    t.equal(await seen(), before)
    writeFileSync(file.key, next.key)
    await eventually('the new one is shown', async () => await seen() !== before)
    t.equal(told().length, 2, 'each trouble is told once')

    // As an orchestrator does it: names are links into a folder, and the folder's link is moved.
    const last = serverCertificate(root)
    writeFileSync(`${file.cert}.2`, last.chain)
    writeFileSync(`${file.key}.2`, last.key)
    for (const path of [file.cert, file.key]) {
      unlinkSync(path)
      symlinkSync(`${path}.2`, path)
    }
    const second = await seen()
    await eventually('through links, too', async () => await seen() !== second)

    prov.change('m1/config/port', { value: 1 })
    t.match(await watch.note('provision.changed'), { params: { value: 1 } }, 'the connection from before lives')
    t.notOk(watch.closed)
  })

  await t.test('an authority that is taken away ends all that stands on it, and no session from before is resumed', async (t) => {
    const client = of('module/m1', {}, between)
    const stays = of('module/m1', {}, other)
    file.trust(root, other)
    await eventually('both are trusted', async () => await statusOf(gateway, stays) === 200, 8000)
    const kept = await keptAlive(t, port, shows(client))
    t.equal(await kept.get(), 200)
    const session = await kept.session()
    const watch = await ws(t, port, { tls: shows(client) })
    const both = await ws(t, port, { token: m1, tls: shows(client) })
    const stream = await sse(t, port, target, { tls: shows(client) })
    const staying = await ws(t, port, { tls: shows(stays) })
    const token = await ws(t, port, { token: m1 })

    writeFileSync(file.ca, '')
    await eventually('an empty file is told', () => gateway.logged(/TLS_CLIENT_CA holds no certificate/).length > 0)
    t.equal(await kept.get(), 200, 'and changes nothing')

    const began = Date.now()
    file.trust(other)
    for (const [name, one] of Object.entries({ watch, both })) {
      t.ok(await one.untilClosed(6000), name)
      t.equal(one.closeCode, 4401, name)
    }
    t.ok(await stream.untilClosed(6000))
    t.ok(Date.now() - began < 4500, 'within about 2 s')
    t.equal(await kept.get(), 401, 'a request on a connection from before')
    for (const options of [{ session }, { session, ...shows(client) }]) {
      const again = await keptAlive(t, port, options)
      t.notOk(again.socket.isSessionReused())
      t.equal(await again.get(), 401)
    }
    t.equal(await statusOf(gateway, client), 401)
    t.notOk(staying.closed, 'what stands on the other authority lives')
    t.notOk(token.closed, 'and what stands on a token')
    t.equal(await statusOf(gateway, stays), 200)
    file.trust(root)
    await eventually('back again', async () => await statusOf(gateway, client) === 200, 8000)
  })

  await t.test('a client that opens a connection and does not shake hands holds nothing', async (t) => {
    const mute = connectPlain(t, port)
    await once(mute, 'connect')
    const began = Date.now()
    await gateway.stop()
    t.ok(Date.now() - began < 8000, 'nor the end of the gateway')
  })
})

function connectPlain (t: Owner, port: number) {
  const socket = connectNet(port, HOST).resume()
  atEnd(t, () => socket.destroy())
  socket.on('error', () => { /* close follows */ })
  return socket
}

t.test('where OPERATOR_JWKS is set a certificate is a module or nobody; without TLS_CLIENT_CA none is asked for', async (t) => {
  const { server } = await fixture(t)
  const file = files(t)
  const tls = { ca: root.cert }
  const people = join(temporaryFolder(t), 'people.json')
  writeFileSync(people, JSON.stringify({ keys: [signers().es.jwk] }))
  const apart = await startGateway(t, { natsUrl: server.url, keys, tls, ready: true, env: { ...variables(file), OPERATOR_JWKS: people } })
  t.equal(await statusOf(apart, of('module/m1')), 200)
  for (const who of ['operator/alice', 'reader/grafana']) t.equal((await http(apart.port, 'GET', '/modules/m1/take-in', { tls: shows(of(who)) })).status, 401, who)

  const plain = await startGateway(t, { natsUrl: server.url, keys, tls, ready: true, env: { TLS_CERT: file.cert, TLS_KEY: file.key } })
  t.equal(await statusOf(plain, of('module/m1')), 401)
  t.equal(await statusOf(plain, of('module/m1', {}, other), m1), 200, 'what nobody asked for is not sent')
})

t.test('wrong files end the process at once, with one line that names the variable', async (t) => {
  const file = files(t)
  const listener = { trouble: () => {}, taken: () => {} }
  const load = (env: Record<string, string>) => {
    try {
      openTls(loadConfig(env), listener)
      return 'fine'
    } catch (error) {
      t.ok(error instanceof ConfigError)
      return (error as Error).message
    }
  }
  const { TLS_CERT, TLS_KEY, TLS_CLIENT_CA } = variables(file) as { TLS_CERT: string, TLS_KEY: string, TLS_CLIENT_CA: string }
  t.equal(load({ TLS_CERT, TLS_KEY, TLS_CLIENT_CA }), 'fine')
  t.match(load({ TLS_CERT }), /^TLS_CERT is set, but TLS_KEY is not/)
  t.match(load({ TLS_KEY }), /^TLS_KEY is set, but TLS_CERT is not/)
  t.match(load({ TLS_CLIENT_CA }), /^TLS_CLIENT_CA is set, but TLS_CERT is not/)
  t.match(load({ TLS_CERT: '/nowhere', TLS_KEY }), /^TLS_CERT is "\/nowhere", but that file cannot be read \(ENOENT\)$/)
  t.match(load({ TLS_CERT: TLS_KEY, TLS_KEY }), /^TLS_CERT holds no certificate in PEM$/)
  t.match(load({ TLS_CERT, TLS_KEY: TLS_CERT }), /^TLS_KEY holds no private key in PEM/)
  t.match(load({ TLS_CERT, TLS_KEY, TLS_CLIENT_CA: TLS_KEY }), /^TLS_CLIENT_CA holds no certificate of an authority/)
  file.trust(between)
  t.match(load({ TLS_CERT, TLS_KEY, TLS_CLIENT_CA }), /^TLS_CLIENT_CA holds no certificate of an authority that signs itself/, 'one between is no anchor')
  writeFileSync(TLS_CLIENT_CA, `${root.cert}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`)
  t.match(load({ TLS_CERT, TLS_KEY, TLS_CLIENT_CA }), /^TLS_CLIENT_CA holds a certificate that cannot be read/)
  writeFileSync(TLS_CLIENT_CA, 'x'.repeat(limits.pemBytes + 1))
  t.match(load({ TLS_CERT, TLS_KEY, TLS_CLIENT_CA }), /ca\.pem is larger than/)
  writeFileSync(TLS_KEY, serverCertificate(root).key)
  t.match(load({ TLS_CERT, TLS_KEY }), /^TLS_KEY holds the key of another certificate than the one in TLS_CERT$/)
})

t.test('no name of a certificate can be read as two', async (t) => {
  t.same(uriNames(undefined), [])
  t.same(uriNames('URI:spiffe://a/b'), ['spiffe://a/b'])
  t.same(uriNames('DNS:"x\\u002c URI:spiffe://evil", URI:spiffe://a/b, IP Address:10.0.0.1, othername:<unsupported>'), ['spiffe://a/b'])
  t.same(uriNames('DNS:"a\\", URI:b", URI:c'), ['c'])
  t.same(uriNames('URI:a, URI:b'), ['a', 'b'])
  for (const text of ['URI:a,URI:b', 'URI:a"b', 'URI', 'x', 'URI:"a', 'URI:a, ,']) t.throws(() => uriNames(text), text)
})
