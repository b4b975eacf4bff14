/** Reads one JSON-RPC 2.0 message of a client (DESIGN section 7). */
import { rpcErrors, type Id } from './frames.js'

export type Message =
  | { id: Id, method: string, params: Record<string, unknown> }
  | { id: Id, error: { code: number, message: string } }
  /** A message without an id: it is not answered and does nothing. */
  | undefined

const isId = (id: unknown): id is Id => id === null || typeof id === 'string' || (typeof id === 'number' && Number.isFinite(id))

export function readMessage (text: string): Message {
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    return { id: null, error: rpcErrors.parse }
  }
  if (Array.isArray(parsed)) return { id: null, error: rpcErrors.batch }
  if (typeof parsed !== 'object' || parsed === null) return { id: null, error: rpcErrors.request }
  const { jsonrpc, id, method, params } = parsed as Record<string, unknown>
  if (jsonrpc !== '2.0' || typeof method !== 'string' || (id !== undefined && !isId(id))) {
    return { id: isId(id) ? id : null, error: rpcErrors.request }
  }
  if (id === undefined) return undefined
  if (params !== undefined && (typeof params !== 'object' || params === null || Array.isArray(params))) {
    return { id, error: { code: -32602, message: 'params must be an object' } }
  }
  return { id, method, params: (params ?? {}) as Record<string, unknown> }
}
