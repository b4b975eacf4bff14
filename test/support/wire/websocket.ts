/** A client of the watch's socket that sends whatever it is told and keeps all that comes. */
import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import type { ConnectionOptions } from 'node:tls'
import { HOST } from '../machine.js'
import { atEnd, type Owner } from '../owner.js'
import { until } from '../until.js'
import { bearer, headerLines, parsed, responses, type RequestHeaders } from './bytes.js'
import { dial } from './dial.js'
import { frame, FrameReader, opcodes, rpc, text } from './frames.js'
import { assertDocumented } from './spec.js'

type Json = ReturnType<typeof parsed>

/** A text frame, parsed. `raw` (its text) and `at` (when it came, in ms) stand beside the members and are not enumerated. */
export interface Message {
  readonly raw: string
  readonly at: number
  id?: unknown
  method?: string
  params?: Json
  result?: Json
  error?: { code: number, message: string, data?: Json }
  /** The frame was no JSON object. */
  unreadable?: true
}

function message (raw: string): Message {
  const json = parsed(raw)
  const content: object = json !== null && typeof json === 'object' ? json : { unreadable: true }
  return Object.defineProperties(content, { raw: { value: raw }, at: { value: Date.now() } }) as Message
}

export interface WsOptions {
  target?: string
  token?: string
  headers?: RequestHeaders
  /** Frames sent in the very packet of the handshake. */
  first?: Buffer[]
  wait?: number
  /** Whether pings and the close are answered. */
  pong?: boolean
  /** For a port that speaks TLS. */
  tls?: ConnectionOptions | undefined
}

/** One connection: the handshake's answer, the frames since, and the requests of the protocol. */
export class WatchSocket {
  status = 0
  headers: Record<string, string> = {}
  body = ''
  json: Json
  closeCode: number | undefined
  closed = false
  pings = 0
  readonly #seen: Message[] = []
  readonly #reader = new FrameReader()
  readonly #pong: boolean
  #head = Buffer.alloc(0)
  #lastId = 0

  constructor (readonly socket: Socket, pong: boolean) { this.#pong = pong }

  send (bytes: Buffer): void { this.socket.write(bytes) }
  pause (): void { this.socket.pause() }
  resume (): void { this.socket.resume() }
  rst (): void { this.socket.resetAndDestroy() }
  end (): void { this.socket.destroy() }

  texts (): Message[] { return this.#seen }
  /** The notifications of a name, such as `session.tick`. */
  notes (name: string): Message[] { return this.#seen.filter((one) => one.method === `mesh/${name}`) }
  /** The params of each `changed`, of one key or of all. */
  changes (key?: string): Json[] { return this.notes('provision.changed').map((one) => one.params).filter((p) => key === undefined || p.key === key) }
  until (fits: (one: Message) => boolean, ms = 3000): Promise<Message | undefined> { return until(() => this.#seen.find(fits), ms, 5) }
  /** The notification of a name at a place in their order. */
  note (name: string, ms = 3000, from = 0): Promise<Message | undefined> { return until(() => this.notes(name)[from], ms, 5) }
  untilClosed (ms = 3000): Promise<true | undefined> { return until(() => this.closed, ms, 5) }

  request (method: string, params: unknown, id: unknown = ++this.#lastId): unknown {
    this.send(text(rpc(method, params, id)))
    return id
  }

  /** Sends a request and waits for its response; an empty one when none came. */
  async call (method: string, params: unknown, ms = 5000): Promise<Message> {
    const id = this.request(method, params)
    return await this.until((one) => one.id === id && one.method === undefined, ms) ?? { raw: '', at: 0 }
  }

  watch (kind: string, key: string, more: object = {}, ms?: number): Promise<Message> { return this.call('provision.watch', { kind, key, ...more }, ms) }
  get (kind: string, key: string, ms?: number): Promise<Message> { return this.call('provision.get', { kind, key }, ms) }
  unwatch (kind: string, key: string, ms?: number): Promise<Message> { return this.call('provision.unwatch', { kind, key }, ms) }

  /** Takes in what the socket brought; says whether the handshake is through. */
  take (data: Buffer): boolean {
    if (this.status === 101) {
      this.#frames(data)
      return true
    }
    this.#head = Buffer.concat([this.#head, data])
    const [answer] = responses(this.#head)
    if (!answer) return false
    if (answer.status !== 101) {
      if (answer.data.length < Number(answer.headers['content-length'] ?? 0)) return false
      this.body = answer.body
      this.json = parsed(answer.body)
    }
    this.status = answer.status
    this.headers = answer.headers
    if (answer.status === 101) this.#frames(this.#head.subarray(this.#head.indexOf('\r\n\r\n') + 4))
    return true
  }

  #frames (bytes: Buffer): void {
    for (const { opcode, data } of this.#reader.read(bytes)) {
      if (opcode === opcodes.text) this.#seen.push(message(data.toString()))
      if (opcode === opcodes.ping) {
        this.pings++
        this.#answer(opcodes.pong, data)
      }
      if (opcode === opcodes.close) {
        this.closeCode = data.length >= 2 ? data.readUInt16BE(0) : 1005
        this.#answer(opcodes.close, data.subarray(0, 2))
      }
    }
  }

  #answer (opcode: number, data: Buffer): void {
    if (this.#pong && !this.socket.destroyed) this.socket.write(frame(opcode, data))
  }
}

/** Opens a WebSocket; resolves when the handshake is answered, or `wait` ms are over; rejects where openapi.yaml allows no such answer. */
export function ws (t: Owner, port: number, options: WsOptions = {}): Promise<WatchSocket> {
  const { target = '/watch', token, headers = {}, first = [], wait = 5000, pong = true, tls } = options
  const socket = dial(port, tls)
  atEnd(t, () => socket.destroy())
  return new Promise((resolve, reject) => {
    const client = new WatchSocket(socket, pong)
    const settled = () => {
      clearTimeout(patience)
      const { status, headers: heads, body } = client
      try {
        if (status !== 0) assertDocumented(port, { method: 'GET', target, upgrade: true }, { status, headers: heads, body, data: Buffer.from(body) })
        resolve(client)
      } catch (error) { reject(error) }
    }
    const patience = setTimeout(settled, wait)
    socket.on('data', (data) => { if (client.take(data)) settled() })
    socket.on('error', () => { /* close follows */ })
    socket.on('close', () => { client.closed = true; settled() })
    socket.on('connect', () => {
      const handshake = headerLines({
        Host: `${HOST}:${port}`,
        Connection: 'Upgrade',
        Upgrade: 'websocket',
        'Sec-WebSocket-Version': '13',
        'Sec-WebSocket-Key': randomBytes(16).toString('base64'),
        ...bearer(token),
        ...headers
      })
      socket.write(Buffer.concat([Buffer.from(`GET ${target} HTTP/1.1\r\n${handshake}\r\n`), ...first]))
    })
  })
}
