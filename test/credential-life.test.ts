/** A credential's key is taken away while connections stand on it (DESIGN sections 7 and 8, case T3). */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { gatewayOnFixture } from './support/fixture.js'
import { temporaryFolder } from './support/machine.js'
import { eventually } from './support/until.js'
import { http } from './support/wire/http.js'
import { jwks, nowS, signers, svid, type Signer } from './support/wire/signing.js'
import { sse } from './support/wire/sse.js'
import { ws } from './support/wire/websocket.js'

const keys = signers()
const { ed, es, rs } = keys
const target = '/provision/config/port'

t.test('a connection lives as long as the key of its credential', async (t) => {
  const file = join(temporaryFolder(t), 'jwks.json')
  const trust = (some: Record<string, Signer>): void => writeFileSync(file, JSON.stringify(jwks(some)))
  trust({ ed, es, rs })
  const { gateway: { port, ...gateway }, prov } = await gatewayOnFixture(t, { env: { AUTH_JWKS: file } }).then((made) => ({
    ...made, gateway: { port: made.gateway.port, logged: (pattern: RegExp) => made.gateway.logged(pattern) }
  }))
  const open = async (signer: Signer, more = {}) => await ws(t, port, { token: svid(signer, 'module/m1', more) })
  const statusOf = async (signer: Signer): Promise<number> => (await http(port, 'GET', target, { token: svid(signer, 'module/m1') })).status

  const leaving = await open(ed)
  await leaving.watch('config', 'port')
  const leavingStream = await sse(t, port, target, { token: svid(ed, 'module/m1') })
  const staying = await open(es)
  await staying.watch('config', 'port')
  const stayingStream = await sse(t, port, target, { token: svid(es, 'module/m1') })
  const renewing = await open(ed)
  t.match(await renewing.call('auth.renew', { token: svid(es, 'module/m1', { exp: nowS() + 900 }) }), { result: { expiresIn: 900 } })
  const renewedBack = await open(es)
  t.match(await renewedBack.call('auth.renew', { token: svid(ed, 'module/m1', { exp: nowS() + 900 }) }), { result: { expiresIn: 900 } })

  await t.test('a set that is empty, broken, or holds no key that is taken ends nothing', async (t) => {
    for (const [i, text] of ['{"keys":[]}', '{"keys":[{"kty":"oct","k":"AAAA"}]}', '{"keys":['].entries()) {
      writeFileSync(file, text)
      await eventually('it is told', () => gateway.logged(/The keys of .* stay as they are/).length > Math.max(0, i - 1))
      t.equal(await statusOf(ed), 200, text)
    }
    await eventually('the broken one is told', () => gateway.logged(/is no JSON/).length > 0)
    t.same([leaving, staying, renewing].map(({ closed }) => closed), [false, false, false])
  })

  await t.test('the same key under another id and at another place is the same key', async (t) => {
    const renamed = { rs, es: { ...es, jwk: { ...es.jwk, kid: 'another' } }, ed }
    trust(renamed)
    await eventually('the new id counts', async () => await statusOf({ ...es, kid: 'another' }) === 200)
    t.equal(await statusOf(es), 401, 'a token that names the old id is none any more')
    prov.change('m1/config/port', { value: 1 })
    t.match(await staying.note('provision.changed'), { params: { value: 1 } }, 'what stands goes on')
    trust({ ed, es, rs })
    await eventually('the old id counts again', async () => await statusOf(es) === 200)
  })

  await t.test('a key that leaves ends what stands on it within about 2 s, though no request comes', async (t) => {
    trust({ es, rs })
    const began = Date.now()
    for (const [name, one] of Object.entries({ leaving, renewedBack })) {
      t.ok(await one.untilClosed(6000), name)
      t.equal(one.closeCode, 4401, name)
    }
    t.ok(await leavingStream.untilClosed(6000))
    t.ok(Date.now() - began < 4000)
    t.equal(await statusOf(ed), 401)
    prov.change('m1/config/port', { value: 2 })
    t.match(await staying.note('provision.changed', 3000, 1), { params: { value: 2 } })
    t.ok(await stayingStream.until(({ json }) => json.value === 2))
    t.notOk(renewing.closed, 'a renewed connection stands on the new key')
    t.equal(leaving.changes().length, 1, 'nothing was handed after the end')
  })

  await t.test('an end beyond all time does no harm', async (t) => {
    const never = await open(es, { exp: 1e300 })
    const hello = await never.note('session.hello')
    t.ok(Number.isSafeInteger(hello?.params.expiresIn) && hello?.params.expiresIn > 1e12)
    t.match(await never.get('config', 'port'), { result: { value: 2 } })
    t.match(await never.call('auth.renew', { token: svid(es, 'module/m1', { exp: 1e301 }) }), { error: { code: -32004 } }, 'there is no later end')
    const stream = await sse(t, port, target, { token: svid(es, 'module/m1', { exp: 1e300 }) })
    t.ok(await stream.until(({ event }) => event === 'value'))
    trust({ rs })
    t.ok(await never.untilClosed(6000), 'and the key still ends it')
    t.ok(await stream.untilClosed(6000))
  })
})
