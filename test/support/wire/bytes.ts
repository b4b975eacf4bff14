/** HTTP/1.1 as bytes: requests that nothing tidies, and every answer that a connection gave. */
import { HOST } from '../machine.js'

/** A header's value; a list is sent once each, null is left out. */
export type RequestHeaders = Record<string, string | string[] | null | undefined>

/** One answer. A header that came twice is joined with a comma; names are in lower case. */
export interface HttpAnswer { status: number, headers: Record<string, string>, data: Buffer, body: string }

export const bearer = (token: string | undefined): RequestHeaders => token === undefined ? {} : { Authorization: `Bearer ${token}` }

export function headerLines (headers: RequestHeaders): string {
  let lines = ''
  for (const [name, value] of Object.entries(headers)) {
    for (const one of [value ?? []].flat()) lines += `${name}: ${one}\r\n`
  }
  return lines
}

/** A request as it goes out. Host, Connection and the length are added unless `headers` say otherwise. */
export function request (method: string, target: string, headers: RequestHeaders = {}, body = ''): string {
  const all: RequestHeaders = { Host: HOST, Connection: 'close', ...headers }
  const bearsBody = body !== '' || ['POST', 'PUT', 'PATCH'].includes(method)
  if (bearsBody && all['Content-Length'] === undefined && all['Transfer-Encoding'] === undefined) {
    all['Content-Length'] = String(Buffer.byteLength(body))
  }
  return `${method} ${target} HTTP/1.1\r\n${headerLines(all)}\r\n${body}`
}

/** The content of a chunked body so far, where it ends in the bytes, and whether its last chunk came. */
export function unchunk (bytes: Buffer): { data: Buffer, end: number, whole: boolean } {
  const chunks: Buffer[] = []
  let at = 0
  while (at < bytes.length) {
    const lineEnd = bytes.indexOf('\r\n', at)
    if (lineEnd < 0) break
    const size = parseInt(bytes.toString('latin1', at, lineEnd), 16)
    if (Number.isNaN(size)) break
    const from = lineEnd + 2
    if (size === 0) return { data: Buffer.concat(chunks), end: Math.min(bytes.length, from + 2), whole: true }
    chunks.push(bytes.subarray(from, from + size))
    at = from + size + 2
  }
  return { data: Buffer.concat(chunks), end: bytes.length, whole: false }
}

function head (bytes: Buffer, end: number): Pick<HttpAnswer, 'status' | 'headers'> {
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, end).split('\r\n')
  const headers: Record<string, string> = {}
  for (const line of lines) {
    const colon = line.indexOf(':')
    const name = line.slice(0, colon).toLowerCase()
    const value = line.slice(colon + 1).trim()
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`
  }
  return { status: Number(statusLine.split(' ')[1]), headers }
}

export const isChunked = (headers: Record<string, string>): boolean => /chunked/i.test(headers['transfer-encoding'] ?? '')

/** Every answer in the bytes of one connection, interim ones (100) left out. `toHead`: the requests were HEADs. */
export function responses (bytes: Buffer, toHead = false): HttpAnswer[] {
  const found: HttpAnswer[] = []
  let rest = bytes
  while (rest.length > 0) {
    const headEnd = rest.indexOf('\r\n\r\n')
    if (headEnd < 0) break
    const { status, headers } = head(rest, headEnd)
    const content = rest.subarray(headEnd + 4)
    const bodyless = toHead || status < 200 || status === 204 || status === 304
    let data = content
    let end = content.length
    if (bodyless) {
      end = 0
      data = content.subarray(0, 0)
    } else if (isChunked(headers)) {
      ({ data, end } = unchunk(content))
    } else if (headers['content-length'] !== undefined) {
      end = Math.min(content.length, Number(headers['content-length']))
      data = content.subarray(0, end)
    }
    if (status !== 100) found.push({ status, headers, data, body: data.toString() })
    rest = content.subarray(end)
  }
  return found
}

/** A text as JSON; undefined where it is none. `any`: what a test reads of it, it asserts. */
export function parsed (text: string): any {
  try { return JSON.parse(text) } catch { return undefined }
}
