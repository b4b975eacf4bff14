/** What the gateway says on the watch's socket, as bytes that are written as they are (DESIGN section 7). */
import { MeshError, problems } from '../core/errors.js'
import type { ValueName } from '../core/names.js'
import type { Said } from '../core/provision/said.js'
import { problemOf } from './problem.js'

export type Id = string | number | null

const text = (of: unknown): Buffer => Buffer.from(JSON.stringify(of))

/** `{…members,"value":BYTES,"etag":…}` with the value's own bytes in it: parsing and writing them again could change them. */
function withValue (open: string, { bytes, etag }: { bytes: Uint8Array, etag: string }, close: string): Buffer {
  return Buffer.concat([Buffer.from(`${open},"value":`), bytes, Buffer.from(`,"etag":${JSON.stringify(etag)}${close}`)])
}

const head = ({ kind, key }: ValueName): string => `"kind":"${kind}","key":${JSON.stringify(key)}`

/** A value as the result of get or watch. */
export const valueResult = (id: Id, name: ValueName, said: Extract<Said, { bytes: Uint8Array }>): Buffer =>
  withValue(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{${head(name)}`, said, '}}')

export const result = (id: Id, of: object): Buffer => text({ jsonrpc: '2.0', id, result: of })
export const notification = (method: string, params: object): Buffer => text({ jsonrpc: '2.0', method: `mesh/${method}`, params })

/** The change of a value: what it is now, or why it is refused. `skipped` says how many were left out for a slow reader. */
export function changed (name: ValueName, said: Said, skipped = 0): Buffer {
  const more = skipped > 0 ? `,"skipped":${skipped}` : ''
  const open = `{"jsonrpc":"2.0","method":"mesh/provision.changed","params":{${head(name)}`
  return 'bytes' in said
    ? withValue(open, said, `${more}}}`)
    : Buffer.from(`${open},"refused":${JSON.stringify(said.refused)}${more}}}`)
}

/** JSON-RPC's own errors, which are not problems of HTTP. */
export const rpcErrors = {
  parse: { code: -32700, message: 'The message is no JSON' },
  request: { code: -32600, message: 'The message is no JSON-RPC 2.0 request' },
  batch: { code: -32600, message: 'Batches are not served: send one request a message' },
  method: { code: -32601, message: 'There is no such method' }
} as const

export const rpcError = (id: Id, error: { code: number, message: string }): Buffer => text({ jsonrpc: '2.0', id, error })

/** An error of core: its code on the socket, and the problem object that HTTP would have answered. */
export function meshError (id: Id, error: MeshError, code: number = problems[error.problem].rpc): Buffer {
  return text({ jsonrpc: '2.0', id, error: { code, message: error.message, data: problemOf(error) } })
}

/** One encoded frame for all who watch a value: it is made once for each thing that is said of it. */
const encoded = new WeakMap<Said, Buffer>()
export function sharedChange (name: ValueName, said: Said): Buffer {
  let frame = encoded.get(said)
  if (!frame) encoded.set(said, frame = changed(name, said))
  return frame
}
