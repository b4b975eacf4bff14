/**
 * The least of a WebSocket client, the same for the gateway and for NATS's listener: it finds the frames and looks no further.
 * Five thousand of them must leave the processor to the server that they watch.
 */
import { connect, type Socket } from 'node:net'

const opcodes = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const

/** A client's frame. The mask is zero: the protocol wants one, and nothing here needs hiding. */
function frame (opcode: number, payload: Buffer): Buffer {
  const long = payload.length > 125
  const head = Buffer.alloc(long ? 8 : 6)
  head[0] = 0x80 | opcode
  head[1] = 0x80 | (long ? 126 : payload.length)
  if (long) head.writeUInt16BE(payload.length, 2)
  return Buffer.concat([head, payload])
}

export const textFrame = (text: string): Buffer => frame(opcodes.text, Buffer.from(text))

const shared = Buffer.allocUnsafeSlow(1024 * 1024)

export interface WebSocketOptions {
  port: number
  path: string
  /** Further request headers. */
  headers: Record<string, string>
  /** Each frame's payload; a slice of a buffer that is used again. */
  message (payload: Buffer): void
  failed (error: Error): void
}

export class WebSocketClient {
  readonly #socket: Socket
  #upgraded = false
  /** What was read of a frame, or of the handshake's answer, that is not whole yet. */
  #rest: Buffer | undefined

  constructor (private readonly options: WebSocketOptions, opened: () => void) {
    const { port, path, headers, failed } = options
    this.#socket = connect({ host: '127.0.0.1', port, noDelay: true, onread: { buffer: shared, callback: (bytes) => { this.#read(bytes, opened); return true } } })
    this.#socket.on('error', failed)
    this.#socket.on('close', () => failed(new Error('a watcher\'s connection was closed')))
    const all = { Host: `127.0.0.1:${port}`, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==', ...headers }
    this.#socket.write(`GET ${path} HTTP/1.1\r\n${Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`)
  }

  write (bytes: Buffer): void { this.#socket.write(bytes) }

  /** Reads nothing from now on, as a client that hangs. */
  mute (): void { this.#socket.pause() }

  close (): void {
    this.#socket.removeAllListeners('close')
    this.#socket.destroy()
  }

  #read (bytes: number, opened: () => void): void {
    let data = shared.subarray(0, bytes)
    if (this.#rest) data = Buffer.concat([this.#rest, data])
    this.#rest = undefined
    if (!this.#upgraded) {
      const end = data.indexOf('\r\n\r\n')
      if (end === -1) { this.#rest = Buffer.from(data); return }
      const status = data.toString('latin1', 9, 12)
      if (status !== '101') { this.options.failed(new Error(`the upgrade was answered with ${status}: ${data.toString('latin1', end + 4, end + 300)}`)); return }
      this.#upgraded = true
      opened()
      data = data.subarray(end + 4)
    }
    this.#frames(data)
  }

  #frames (data: Buffer): void {
    let at = 0
    while (data.length - at >= 2) {
      const short = data[at + 1]! & 127
      const head = short === 126 ? 4 : short === 127 ? 10 : 2
      if (data.length - at < head) break
      const length = short === 126 ? data.readUInt16BE(at + 2) : short === 127 ? Number(data.readBigUInt64BE(at + 2)) : short
      if (data.length - at < head + length) break
      const payload = data.subarray(at + head, at + head + length)
      const opcode = data[at]! & 15
      if (opcode === opcodes.ping) this.write(frame(opcodes.pong, payload))
      else if (opcode === opcodes.close) this.options.failed(new Error(`the server closed: ${payload.length >= 2 ? payload.readUInt16BE(0) : 'no code'}`))
      else this.options.message(payload)
      at += head + length
    }
    if (at < data.length) this.#rest = Buffer.from(data.subarray(at))
  }
}
