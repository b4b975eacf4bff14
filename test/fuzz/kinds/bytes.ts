/** HTTP as bytes: good requests with edits, in pieces, several in a row. */
import { connect } from 'node:net'
import fc from 'fast-check'
import { HOST } from '../../support/machine.js'
import { request, responses } from '../../support/wire/bytes.js'
import { kind } from '../kind.js'
import { mutatedBytes } from '../mutate.js'
import { boundMs } from '../stage.js'

/** Stands for the token in what is drawn, so that a seed gives the same bytes each time. */
const mark = 'TOKEN'
const own = { Authorization: `Bearer ${mark}`, Connection: null }
const json = { ...own, 'Content-Type': 'application/json' }
const good = [
  request('GET', '/livez', own), request('GET', '/provision/config/port', own), request('HEAD', '/provision/config/port', own),
  request('GET', '/provision/bound', own), request('GET', '/openapi.json', own), request('GET', '/modules/m1/take-in', own),
  request('POST', '/modules/m1/take-in', json, '{"reason":"x"}'), request('POST', '/modules/m1/take-in', { ...json, Expect: '100-continue' }, '{}'),
  request('POST', '/modules/m1/take-in', { ...json, 'Transfer-Encoding': 'chunked' }, '5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'),
  request('OPTIONS', '/provision/config/port', { ...own, Origin: 'https://dash.example', 'Access-Control-Request-Method': 'GET' }),
  request('GET', '/provision/config/port', { ...own, Upgrade: 'h2c', Connection: 'Upgrade', 'HTTP2-Settings': 'AAMAAABkAAQ' }),
  request('PUT', '/provision/config/port', json, '1'),
  request('GET', '/watch', { ...own, Upgrade: 'websocket', Connection: 'Upgrade', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==' })
]

const several = fc.array(fc.constantFrom(...good), { minLength: 1, maxLength: 4 }).map((all) => all.join(''))

interface Drawn { bytes: Buffer, cuts: number[] }

function piecesOf ({ bytes, cuts }: Drawn, token: string): Buffer[] {
  const whole = Buffer.from(bytes.toString('latin1').replaceAll(mark, token), 'latin1')
  const at = [0, ...cuts.map((cut) => Math.floor(cut * whole.length)).sort((a, b) => a - b), whole.length]
  return at.slice(1).map((to, i) => whole.subarray(at[i], to))
}

/** Sends all, ends this side, and hands back what came until the other side ended; undefined where it did not. */
function exchange (port: number, pieces: Buffer[]): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const received: Buffer[] = []
    const socket = connect(port, HOST)
    const done = (ended: boolean): void => {
      clearTimeout(patience)
      socket.destroy()
      resolve(ended ? Buffer.concat(received) : undefined)
    }
    const patience = setTimeout(() => done(false), boundMs)
    socket.setNoDelay(true)
    socket.on('data', (data) => received.push(data))
    socket.on('error', () => { /* close follows */ })
    socket.on('close', () => done(true))
    socket.on('connect', () => {
      const next = (i: number): void => {
        const piece = pieces[i]
        if (piece === undefined) socket.end()
        else socket.write(piece, () => setImmediate(next, i + 1))
      }
      next(0)
    })
  })
}

/**
 * What was answered. The length that an answer to HEAD names is that of a body which does not follow, and which of the mutated requests
 * was one cannot be told: where there may be one, the answers are told by their status lines alone.
 */
function answersIn (raw: Buffer, asked: Buffer): Array<{ status: number, body: string }> {
  if (!asked.includes('HEAD ')) return responses(raw)
  return [...raw.toString('latin1').matchAll(/HTTP\/1\.1 (\d+) [^\r\n]*\r\n([^]*?)(?=HTTP\/1\.1 |$)/g)].map(([, status, body = '']) => ({ status: Number(status), body }))
    .filter(({ status }) => status !== 100)
}

export const bytesKind = kind<Drawn>({
  promise: 'whatever bytes come, the connection ends when its client ends it, and what is answered is HTTP',
  runs: 600,
  input: fc.record({
    bytes: mutatedBytes(several),
    cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 3 })
  }),
  async attempt (stage, drawn) {
    const raw = await exchange(stage.port, piecesOf(drawn, stage.tokens.m1))
    if (!raw) throw new Error(`the connection did not end within ${boundMs} ms`)
    const answers = answersIn(raw, drawn.bytes)
    if (raw.length > 0 && !raw.toString('latin1', 0, 9).startsWith('HTTP/1.1 ')) throw new Error(`no HTTP was answered: ${raw.toString('latin1', 0, 80)}`)
    const bad = answers.find(({ status }) => !(status >= 101 && status < 600) || (status >= 500 && status !== 501))
    if (bad) throw new Error(`${bad.status} was answered: ${bad.body.slice(0, 300)}`)
    if (answers.some(({ body }) => body.includes(stage.tokens.m1))) throw new Error('the token was said back')
    return answers[0] ? String(answers[0].status) : 'nothing'
  }
})
