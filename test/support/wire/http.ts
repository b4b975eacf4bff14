/** Plain HTTP requests over a raw socket. */
import type { ConnectionOptions } from 'node:tls'
import { pause } from '../until.js'
import { bearer, isChunked, parsed, request, responses, unchunk, type HttpAnswer, type RequestHeaders } from './bytes.js'
import { dial } from './dial.js'
import { assertDocumented } from './spec.js'

export interface RawExchange {
  responses: HttpAnswer[]
  raw: Buffer
  /** `closed`, an error's code, or undefined while the connection was still open at the end. */
  closed: string | undefined
  ms: number
}

interface RawOptions {
  /** The longest that is waited for the connection's end, in ms. */
  wait?: number
  /** Pause between the writes of a list, in ms. */
  gap?: number
  head?: boolean
  /** Ends once so many answers came. */
  count?: number
  /** For a port that speaks TLS. */
  tls?: ConnectionOptions | undefined
}

const requestLine = /^([A-Z]+) ([^ \r\n]+) HTTP\/1\.[01]\r?\n/

/** Whether the first answer of a connection came to its end. */
function isWhole (raw: Buffer, { headers, data }: HttpAnswer): boolean {
  if (isChunked(headers)) return unchunk(raw.subarray(raw.indexOf('\r\n\r\n') + 4)).whole
  return data.length >= Number(headers['content-length'] ?? 0)
}

/** Holds the first answer against the document, where the bytes that were sent begin with a request. */
function check (port: number, sent: string | Buffer | Array<string | Buffer>, { responses: [answer], raw }: RawExchange): void {
  const began = [sent].flat().map((part) => part.toString('latin1')).join('')
  const [, method, target] = requestLine.exec(began) ?? []
  if (!answer || method === undefined || target === undefined) return
  const upgrade = /\r\nupgrade:/i.test(began)
  assertDocumented(port, { method, target, upgrade }, answer, method === 'HEAD' || isWhole(raw, answer))
}

/**
 * Sends bytes as they are (a list: one write each) and hands back all that came until the connection ended; rejects where
 * openapi.yaml allows no such answer.
 */
export function rawHttp (port: number, bytes: string | Buffer | Array<string | Buffer>, options: RawOptions = {}): Promise<RawExchange> {
  const { wait = 3000, gap = 0, head = false, count = 0, tls } = options
  return new Promise((resolve, reject) => {
    const received: Buffer[] = []
    const began = Date.now()
    const socket = dial(port, tls)
    let closed: string | undefined
    const done = () => {
      clearTimeout(patience)
      socket.destroy()
      const raw = Buffer.concat(received)
      const exchange = { responses: responses(raw, head), raw, closed, ms: Date.now() - began }
      try {
        check(port, bytes, exchange)
        resolve(exchange)
      } catch (error) { reject(error) }
    }
    const patience = setTimeout(done, wait)
    socket.on('data', (data) => {
      received.push(data)
      if (count > 0 && responses(Buffer.concat(received), head).length >= count) done()
    })
    socket.on('error', (error: NodeJS.ErrnoException) => { closed = error.code ?? 'error' })
    socket.on('close', () => { closed ??= 'closed'; done() })
    const send = async () => {
      for (const part of [bytes].flat()) {
        if (socket.destroyed) return
        socket.write(part)
        if (gap > 0) await pause(gap)
      }
    }
    socket.on('connect', () => { void send() })
  })
}

export interface HttpOptions { headers?: RequestHeaders, body?: string, token?: string, wait?: number, tls?: ConnectionOptions | undefined }

/** One answer; `json` is the body's, undefined where it is none. Status 0: no answer came. */
export interface HttpResult extends HttpAnswer {
  json: ReturnType<typeof parsed>
  ms: number
  closed: string | undefined
}

/** One request, one answer. */
export async function http (port: number, method: string, target: string, options: HttpOptions = {}): Promise<HttpResult> {
  const { headers = {}, body = '', token, wait = 5000, tls } = options
  const bytes = request(method, target, { ...bearer(token), ...headers }, body)
  const exchange = await rawHttp(port, bytes, { wait, head: method === 'HEAD', tls })
  const answer = exchange.responses[0] ?? { status: 0, headers: {}, data: Buffer.alloc(0), body: '' }
  return { ...answer, json: parsed(answer.body), ms: exchange.ms, closed: exchange.closed }
}
