/** The rows of rows.json: exact bytes in, what has to come out. Each row's id starts with the case it belongs to. */
import { join } from 'node:path'
import t from 'tap'
import { spy } from './support/bus/spy.js'
import { gatewayOnFixture } from './support/fixture.js'
import { http } from './support/wire/http.js'
import { readRows, rowVars, runRow } from './support/wire/rows.js'
import { signers, svid } from './support/wire/signing.js'
import { OK_TOKENS, STRANGERS, tokens } from './support/wire/tokens.js'
import { ws } from './support/wire/websocket.js'

/** The promise behind the rows of each case. */
const cases: Record<string, string> = {
  K1: 'a wildcard in a key is a character and means nothing more',
  K2: 'blanks are characters, control characters are refused, and nothing of a key is spoken on the bus',
  K4: 'a key is decoded once, and is the same key on both doors',
  K6: 'odd kinds and paths reach nobody; a secret is refused with its reason',
  T1: 'no token chooses the algorithm or the key it is judged by',
  T5: 'the module is the one that the credential names',
  W1: 'a frame in the packet of the handshake is answered like any other',
  W3: 'a broken frame ends its own connection and no other',
  H1: 'HEAD, preflights, other methods and unknown paths are answered as HTTP has it',
  H5: 'whatever a client sends for an empty body is an empty body'
}

t.test('rows', async (t) => {
  const keys = signers()
  const { gateway, prov, nc } = await gatewayOnFixture(t, { keys })
  const all = await spy(t, nc)
  const vars = rowVars(keys)
  const token = svid(keys.ed, 'module/m1')
  const rows = readRows(join(import.meta.dirname, 'rows.json'))

  for (const [name, promise] of Object.entries(cases)) {
    await t.test(`${name}: ${promise}`, async (t) => {
      for (const row of rows) {
        if (!row.id.startsWith(`${name}-`)) continue
        t.equal(await runRow(t, gateway.port, row, vars), undefined, row.id)
      }
    })
  }

  t.test('T1: every hostile token is the same 401, every good one is taken', async (t) => {
    const bodies = new Set<string>()
    const made = tokens(keys)
    for (const [name, one] of Object.entries(made)) {
      const { status, body } = await http(gateway.port, 'GET', '/provision/config/port', { token: one })
      if (OK_TOKENS.includes(name)) t.equal(status, 200, name)
      else if (STRANGERS.includes(name)) t.match(String(status), /^40[13]$/, name)
      else {
        t.equal(status, 401, name)
        bodies.add(body)
      }
    }
    t.equal(bodies.size, 1, 'what was wrong with a token is not said')
  })

  t.test('K1, K2, K6, T5: nothing that a client wrote was spoken on the bus, and no secret was asked for', async (t) => {
    await nc.flush()
    t.same(prov.asked.filter(({ kind }) => kind !== 'config' && kind !== 'bound'), [])
    const asks = all.heard.map(({ subject }) => subject).filter((subject) => !/^(\$JS\.|\$KV\.|_INBOX\.|mesh\.provision\.node-a\.(m1|m2)\.(get|list)$)/.test(subject))
    t.same(asks, [])
  })

  t.test('W3: a fresh connection works after all of them', async (t) => {
    const client = await ws(t, gateway.port, { token })
    t.match(await client.watch('config', 'port'), { result: { value: 8080 } })
    t.equal((await http(gateway.port, 'GET', '/livez')).status, 200)
  })
})
