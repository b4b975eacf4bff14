/** A client of server-sent events that shows what came: events, comments, and when the stream ended. */
import type { Socket } from 'node:net'
import type { ConnectionOptions } from 'node:tls'
import { HOST } from '../machine.js'
import { atEnd, type Owner } from '../owner.js'
import { until } from '../until.js'
import { bearer, headerLines, isChunked, parsed, responses, unchunk, type RequestHeaders } from './bytes.js'
import { dial } from './dial.js'
import { assertDocumented } from './spec.js'

export interface StreamEvent { event: string, id?: string, data: string, json: ReturnType<typeof parsed>, at: number }

/** One request's stream; where the answer was no stream, its status, headers, body and json. */
export class EventStream {
  status = 0
  headers: Record<string, string> = {}
  body = ''
  json: ReturnType<typeof parsed>
  comments = 0
  /** When to come back, in ms, as the stream said last. */
  retry: number | undefined
  closed = false
  closedAt = 0
  readonly #seen: StreamEvent[] = []
  #bytes = Buffer.alloc(0)
  #read = 0

  constructor (readonly socket: Socket) {}

  events (): StreamEvent[] { return this.#seen }
  named (name: string): StreamEvent[] { return this.#seen.filter((event) => event.event === name) }
  until (fits: (event: StreamEvent) => boolean, ms = 3000): Promise<StreamEvent | undefined> { return until(() => this.#seen.find(fits), ms, 5) }
  untilClosed (ms = 3000): Promise<true | undefined> { return until(() => this.closed, ms, 5) }
  end (): void { this.socket.destroy() }

  /** Takes in what the socket brought; says whether the answer has shown what it is. */
  take (data: Buffer): boolean {
    this.#bytes = Buffer.concat([this.#bytes, data])
    const [answer] = responses(this.#bytes)
    if (!answer) return false
    this.status = answer.status
    this.headers = answer.headers
    if (!/^text\/event-stream/.test(answer.headers['content-type'] ?? '')) {
      const length = answer.headers['content-length']
      if (length === undefined || answer.data.length < Number(length)) return false
      this.settle(answer.body)
      return true
    }
    const content = this.#bytes.subarray(this.#bytes.indexOf('\r\n\r\n') + 4)
    const { data: stream, whole } = isChunked(answer.headers) ? unchunk(content) : { data: content, whole: false }
    const lines = stream.toString().replace(/\r\n?/g, '\n')
    for (let blank = lines.indexOf('\n\n', this.#read); blank >= 0; blank = lines.indexOf('\n\n', this.#read)) {
      this.#block(lines.slice(this.#read, blank).split('\n'))
      this.#read = blank + 2
    }
    if (whole) this.socket.destroy()
    return true
  }

  settle (body: string): void {
    this.body = body
    this.json = parsed(body)
  }

  close (): void {
    this.closed = true
    this.closedAt = Date.now()
    if (this.status !== 0 && this.body === '') this.settle(responses(this.#bytes)[0]?.body ?? '')
  }

  #block (lines: string[]): void {
    const fields: Record<string, string> = {}
    const data: string[] = []
    for (const line of lines) {
      if (line.startsWith(':')) {
        this.comments++
        continue
      }
      const [, name = '', value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? []
      if (name === 'data') data.push(value)
      else if (name !== '') fields[name] = value
    }
    if (fields.retry !== undefined) this.retry = Number(fields.retry)
    if (data.length === 0) return
    const text = data.join('\n')
    this.#seen.push({ event: 'message', ...fields, data: text, json: parsed(text), at: Date.now() })
  }
}

interface Options { method?: 'GET' | 'POST', token?: string, headers?: RequestHeaders, wait?: number, tls?: ConnectionOptions | undefined }

/** Asks for an event stream; resolves when it is known what the answer is, or `wait` ms are over; rejects where openapi.yaml allows none such. */
export function sse (t: Owner, port: number, target: string, { method = 'GET', token, headers = {}, wait = 5000, tls }: Options = {}): Promise<EventStream> {
  const socket = dial(port, tls)
  atEnd(t, () => socket.destroy())
  return new Promise((resolve, reject) => {
    const stream = new EventStream(socket)
    const settled = () => {
      clearTimeout(patience)
      const { status, headers: heads, body } = stream
      try {
        if (status !== 0) assertDocumented(port, { method, target }, { status, headers: heads, body, data: Buffer.from(body) }, body !== '')
        resolve(stream)
      } catch (error) { reject(error) }
    }
    const patience = setTimeout(settled, wait)
    socket.on('data', (data) => { if (stream.take(data)) settled() })
    socket.on('error', () => { /* close follows */ })
    socket.on('close', () => { stream.close(); settled() })
    socket.on('connect', () => {
      const all = { Host: `${HOST}:${port}`, Accept: 'text/event-stream', ...method === 'POST' ? { 'Content-Length': '0' } : {}, ...bearer(token), ...headers }
      socket.write(`${method} ${target} HTTP/1.1\r\n${headerLines(all)}\r\n`)
    })
  })
}
