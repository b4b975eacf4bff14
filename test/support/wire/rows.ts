/** Rows: one request or one connection each, its exact bytes in `test/rows.json`, and what has to come of it. */
import { readFileSync } from 'node:fs'
import { HOST } from '../machine.js'
import type { Owner } from '../owner.js'
import { until } from '../until.js'
import { request, type RequestHeaders } from './bytes.js'
import { frame, opcodes, rpc, type FrameOptions } from './frames.js'
import { rawHttp } from './http.js'
import { answered, judgeHttp, judgeWs, type WantedHttp, type WantedWs } from './judge.js'
import { claims, person, sign, svid, type Signers } from './signing.js'
import { tokens } from './tokens.js'
import { ws } from './websocket.js'

/** A text repeated so many times. */
type Repeat = [string, number]

/** One frame; the first of hex, b64, repeat, rpc, json and data that is given is its payload. `hex` is the whole frame. */
interface RowFrame extends FrameOptions {
  op?: number
  hex?: string
  b64?: string
  repeat?: Repeat
  rpc?: [string, unknown, unknown?]
  json?: unknown
  data?: string
}

interface HttpRow {
  id: string
  http: {
    method?: string
    target?: string
    /** Appended to the target. */
    repeat?: Repeat
    headers?: RequestHeaders
    body?: string
    bodyRepeat?: Repeat
    /** All bytes of the request, instead of the members above. */
    raw?: string
    /** The request's characters are bytes, not UTF-8. */
    latin1?: boolean
  }
  want: WantedHttp
}

interface WsRow {
  id: string
  ws: { target?: string, headers?: RequestHeaders, first?: RowFrame[], frames?: RowFrame[] }
  want: WantedWs
}

export type Row = HttpRow | WsRow

export const readRows = (file: string): Row[] => JSON.parse(readFileSync(file, 'utf8')) as Row[]

/** Puts a value in the place of each $NAME; throws where a name has none. */
function fill (part: unknown, vars: Record<string, string>): unknown {
  if (typeof part === 'string') {
    return part.replace(/\$([A-Z][A-Z0-9_]*)/g, (_, name: string) => {
      const value = vars[name]
      if (value === undefined) throw new Error(`a row needs $${name}, which has no value`)
      return value
    })
  }
  if (Array.isArray(part)) return part.map((one) => fill(one, vars))
  if (part !== null && typeof part === 'object') return Object.fromEntries(Object.entries(part).map(([name, one]) => [name, fill(one, vars)]))
  return part
}

const repeated = (repeat: Repeat | undefined): string => repeat === undefined ? '' : repeat[0].repeat(repeat[1])

function bytesOf (row: RowFrame): Buffer {
  if (row.hex !== undefined) return Buffer.from(row.hex, 'hex')
  let payload: string | Buffer = row.data ?? ''
  if (row.b64 !== undefined) payload = Buffer.from(row.b64, 'base64')
  else if (row.repeat !== undefined) payload = repeated(row.repeat)
  else if (row.rpc !== undefined) payload = JSON.stringify(rpc(...row.rpc))
  else if (row.json !== undefined) payload = JSON.stringify(row.json)
  return frame(row.op ?? opcodes.text, payload, row)
}

async function runHttp (port: number, { http, want }: HttpRow): Promise<string | undefined> {
  const method = http.method ?? 'GET'
  const target = (http.target ?? '') + repeated(http.repeat)
  const body = http.bodyRepeat ? repeated(http.bodyRepeat) : http.body ?? ''
  const bytes = Buffer.from(http.raw ?? request(method, target, http.headers, body), http.latin1 ? 'latin1' : 'utf8')
  return judgeHttp(want, await rawHttp(port, bytes, { head: method === 'HEAD' }))
}

/** The id of the request behind a row's own; no row uses it. */
const after = 'after the row'

async function runWs (t: Owner, port: number, row: WsRow): Promise<string | undefined> {
  const { target, headers, first = [], frames = [] } = row.ws
  const { answers, close } = row.want
  const client = await ws(t, port, { target, headers, first: first.map(bytesOf) })
  if (client.status === 101) {
    for (const one of frames) client.send(bytesOf(one))
    if (close) await client.untilClosed()
    else if (answers) await until(() => client.closed || answers.every((want) => answered(client.texts(), want)), 3000)
    // What must not come would follow the answers closely: one more answer shows that all before it is here.
    if (!client.closed && !close) {
      client.request('provision.unwatch', { kind: 'config', key: 'after' }, after)
      await client.until((one) => one.id === after)
    }
  }
  const why = judgeWs(row.want, client)
  client.end()
  return why
}

/** Runs one row against the gateway at a port: undefined where it holds, else why not. */
export function runRow (t: Owner, port: number, row: Row, vars: Record<string, string>): Promise<string | undefined> {
  const filled = fill(row, { ...vars, BASE: `${HOST}:${port}`, PORT: String(port) }) as Row
  return 'http' in filled ? runHttp(port, filled) : runWs(t, port, filled)
}

export interface RowResult { id: string, why: string | undefined }

/** Runs rows, one after the other. */
export async function runRows (t: Owner, port: number, rows: Row[], vars: Record<string, string>): Promise<RowResult[]> {
  const results: RowResult[] = []
  for (const row of rows) results.push({ id: row.id, why: await runRow(t, port, row, vars) })
  return results
}

/** What the $NAMES of the rows stand for. */
export function rowVars (keys: Signers, dash = 'https://dash.example'): Record<string, string> {
  const key = keys.ed
  const m1 = svid(key, 'module/m1')
  const m2 = svid(key, 'module/m2')
  const operator = svid(key, 'operator/alice')
  const accessToken = sign(key, claims('alice@example.org', { scope: 'mesh:operate' }), { header: { typ: 'at+jwt' } })
  const bearers = {
    AUTH: m1,
    AUTH_M2: m2,
    OPERATOR: operator,
    READER: svid(key, 'reader/grafana'),
    PERSON_OP: person(key, 'alice@example.org', 'openid mesh:operate'),
    PERSON_READ: person(key, 'bob@example.org', 'mesh:read'),
    PERSON_AT: accessToken,
    PERSON_NONE: person(key, 'eve@example.org', 'openid profile'),
    MODULE_SCOPED: svid(key, 'module/m1', { scope: 'mesh:operate mesh:read' }),
    READER_SCOPED: svid(key, 'reader/grafana', { scope: 'mesh:operate' })
  }
  return {
    DASH: dash,
    M1: m1,
    M2: m2,
    OPERATOR_TOKEN: operator,
    ...Object.fromEntries(Object.entries(bearers).map(([name, token]) => [name, `Bearer ${token}`])),
    ...Object.fromEntries(Object.entries(tokens(keys)).map(([name, token]) => [`T_${name}`, token]))
  }
}
