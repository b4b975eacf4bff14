/** WebSocket frames: written with any rule broken that a test wants broken, and read back. */
import { randomBytes } from 'node:crypto'

export const opcodes = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const

export interface FrameOptions {
  mask?: boolean
  fin?: boolean
  /** Reserved bits, 0x40 is the first. */
  rsv?: number
  /** The length that is said, where it is not the payload's. */
  len?: number
}

function lengthOf (first: number, masked: number, length: number): Buffer {
  if (length < 126) return Buffer.from([first, masked | length])
  if (length < 65_536) {
    const head = Buffer.from([first, masked | 126, 0, 0])
    head.writeUInt16BE(length, 2)
    return head
  }
  const head = Buffer.from([first, masked | 127, 0, 0, 0, 0, 0, 0, 0, 0])
  head.writeBigUInt64BE(BigInt(length), 2)
  return head
}

/** One frame as a client sends it. */
export function frame (opcode: number, payload: string | Buffer = '', { mask = true, fin = true, rsv = 0, len }: FrameOptions = {}): Buffer {
  const data = Buffer.from(payload as Buffer)
  const head = lengthOf((fin ? 0x80 : 0) | rsv | opcode, mask ? 0x80 : 0, len ?? data.length)
  if (!mask) return Buffer.concat([head, data])
  const key = randomBytes(4)
  return Buffer.concat([head, key, data.map((byte, i) => byte ^ (key[i & 3] as number))])
}

/** A text frame; anything but a text goes as JSON. */
export const text = (content: unknown, options?: FrameOptions): Buffer =>
  frame(opcodes.text, typeof content === 'string' ? content : JSON.stringify(content), options)

/** A JSON-RPC request of the watch protocol; without an id a notification. */
export const rpc = (method: string, params: unknown, id?: unknown): Record<string, unknown> =>
  ({ jsonrpc: '2.0', ...(id === undefined ? {} : { id }), method: `mesh/${method}`, params })

/** Puts the frames of a server together into messages; control frames come out as they are. */
export class FrameReader {
  #bytes: Buffer = Buffer.alloc(0)
  #parts: Buffer[] = []
  #opcode = 0

  /** The messages and control frames that are complete with this chunk. */
  read (chunk: Buffer): Array<{ opcode: number, data: Buffer }> {
    const complete: Array<{ opcode: number, data: Buffer }> = []
    this.#bytes = this.#bytes.length > 0 ? Buffer.concat([this.#bytes, chunk]) : chunk
    for (let next = this.#frame(); next; next = this.#frame()) {
      const { opcode, fin, data } = next
      if (opcode >= opcodes.close) {
        complete.push({ opcode, data })
        continue
      }
      if (opcode !== opcodes.continuation) {
        this.#opcode = opcode
        this.#parts = []
      }
      this.#parts.push(data)
      if (fin) complete.push({ opcode: this.#opcode, data: Buffer.concat(this.#parts) })
    }
    return complete
  }

  #frame (): { opcode: number, fin: boolean, data: Buffer } | undefined {
    const bytes = this.#bytes
    if (bytes.length < 2) return undefined
    const short = bytes.readUInt8(1) & 127
    const from = short === 126 ? 4 : short === 127 ? 10 : 2
    if (bytes.length < from) return undefined
    const length = short === 126 ? bytes.readUInt16BE(2) : short === 127 ? Number(bytes.readBigUInt64BE(2)) : short
    if (bytes.length < from + length) return undefined
    this.#bytes = bytes.subarray(from + length)
    const first = bytes.readUInt8(0)
    return { opcode: first & 15, fin: (first & 0x80) !== 0, data: Buffer.from(bytes.subarray(from, from + length)) }
  }
}
