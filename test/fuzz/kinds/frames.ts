/** WebSocket as bytes: handshakes with edits, and after a good one frames with every rule broken. */
import { connect } from 'node:net'
import fc from 'fast-check'
import { HOST } from '../../support/machine.js'
import { request, responses } from '../../support/wire/bytes.js'
import { frame, FrameReader, opcodes, rpc } from '../../support/wire/frames.js'
import { kind } from '../kind.js'
import { anyText, mutatedBytes, mutatedText } from '../mutate.js'
import { boundMs } from '../stage.js'

const mark = 'TOKEN'
const handshake = request('GET', '/watch', {
  Authorization: `Bearer ${mark}`, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ=='
})
const browser = request('GET', '/watch', {
  Origin: 'https://dash.example',
  Connection: 'keep-alive, Upgrade',
  Upgrade: 'websocket',
  'Sec-WebSocket-Version': '13',
  'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
  'Sec-WebSocket-Protocol': `mesh.provision.v1, bearer.${mark}`,
  'Sec-WebSocket-Extensions': 'permessage-deflate'
})

const call = fc.constantFrom('port', 'a/b', 'none').map((key) => JSON.stringify(rpc('provision.watch', { kind: 'config', key }, 1)))
/** The length that a frame says and has not. */
const saidLength = fc.constantFrom(0, 1, 125, 126, 16_385, 65_536, 2 ** 31, 2 ** 53)

const oneFrame = fc.record({
  opcode: fc.oneof(fc.constantFrom(...Object.values(opcodes)), fc.integer({ min: 0, max: 15 })),
  payload: fc.oneof(call.map((one) => Buffer.from(one)), mutatedText(call).map((one) => Buffer.from(one)), anyText.map((one) => Buffer.from(one)),
    fc.uint8Array({ maxLength: 140 }).map((bytes) => Buffer.from(bytes)),
    fc.constantFrom(Buffer.alloc(16_385, 'a'), Buffer.alloc(126, 'a'), Buffer.from([0x03, 0xe8]))),
  mask: fc.oneof({ weight: 6, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
  fin: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
  rsv: fc.oneof({ weight: 8, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.constantFrom(0x40, 0x20, 0x10, 0x70) }),
  len: fc.oneof({ weight: 8, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: saidLength })
}).map(({ opcode, payload, ...how }) => frameOf(opcode, payload, how))

/** The mask is drawn by the client's own means; a fixed one keeps a seed's bytes the same. */
interface How { mask: boolean, fin: boolean, rsv: number, len: number | undefined }
function frameOf (opcode: number, payload: Buffer, { mask, ...how }: How): Buffer {
  const bare = frame(opcode, payload, { ...how, mask: false })
  if (!mask) return bare
  const head = bare.subarray(0, bare.length - payload.length)
  head.writeUInt8(head.readUInt8(1) | 0x80, 1)
  return Buffer.concat([head, Buffer.alloc(4), payload])
}

interface Drawn { head: Buffer, frames: Buffer[] }

const input: fc.Arbitrary<Drawn> = fc.record({
  head: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(handshake, browser).map((text) => Buffer.from(text)) },
    { weight: 1, arbitrary: mutatedBytes(fc.constantFrom(handshake, browser)) }
  ),
  frames: fc.array(fc.oneof({ weight: 4, arbitrary: oneFrame }, { weight: 1, arbitrary: mutatedBytes(oneFrame) }), { maxLength: 6 })
})

interface Came { raw: Buffer, ended: boolean }

function exchange (port: number, bytes: Buffer): Promise<Came> {
  return new Promise((resolve) => {
    const received: Buffer[] = []
    const socket = connect(port, HOST)
    const done = (ended: boolean): void => {
      clearTimeout(patience)
      socket.destroy()
      resolve({ raw: Buffer.concat(received), ended })
    }
    const patience = setTimeout(() => done(false), boundMs)
    socket.on('data', (data) => received.push(data))
    socket.on('error', () => { /* close follows */ })
    socket.on('close', () => done(true))
    socket.on('connect', () => socket.end(bytes))
  })
}

/** Codes that the gateway or the WebSocket protocol has; 1011 would be its own fault. */
const codes = new Set([1000, 1001, 1002, 1003, 1005, 1006, 1007, 1009, 4400])

export const framesKind = kind<Drawn>({
  promise: 'whatever bytes follow a handshake, the connection ends with a code that the protocol has, and what is said on it is JSON-RPC',
  runs: 500,
  input,
  async attempt (stage, { head, frames }) {
    const opening = Buffer.from(head.toString('latin1').replaceAll(mark, stage.tokens.m1), 'latin1')
    const { raw, ended } = await exchange(stage.port, Buffer.concat([opening, ...frames]))
    if (!ended) throw new Error(`the connection did not end within ${boundMs} ms`)
    const [answer] = responses(raw)
    if (!answer) {
      if (raw.length > 0) throw new Error(`no HTTP was answered: ${raw.toString('latin1', 0, 80)}`)
      return 'nothing'
    }
    if (answer.status !== 101) {
      if (!(answer.status >= 200 && answer.status < 500)) throw new Error(`${answer.status} was answered: ${answer.body.slice(0, 300)}`)
      return String(answer.status)
    }
    if (raw.includes(stage.tokens.m1)) throw new Error('the token was said back')
    let closed = 'open'
    for (const { opcode, data } of new FrameReader().read(raw.subarray(raw.indexOf('\r\n\r\n') + 4))) {
      if (opcode === opcodes.close) {
        const code = data.length >= 2 ? data.readUInt16BE(0) : 1005
        // A client's own code is said back, so only those that the gateway alone could have said are judged.
        const own = frames.some((one) => one.includes(data.subarray(0, 2)))
        if (!codes.has(code) && !own) throw new Error(`closed with ${code} ${data.toString('utf8', 2)}`)
        closed = own ? 'closed by the client' : String(code)
      } else if (opcode === opcodes.text) {
        const said = JSON.parse(data.toString()) as { jsonrpc?: string, error?: { code: number } }
        if (said.jsonrpc !== '2.0' || said.error?.code === -32603) throw new Error(`this was said: ${data.toString().slice(0, 300)}`)
      }
    }
    return closed
  }
})
