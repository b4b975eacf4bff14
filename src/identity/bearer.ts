import type { ShownCertificate } from './certificates.js'

/** What a request shows for itself, taken from its headers and its connection, and not yet believed. */
export interface Credentials {
  /** The tokens that were sent, each once. */
  tokens: string[]
  /** Something was sent as a credential that cannot be one. */
  malformed: boolean
  /** The certificate that the connection was opened with. */
  certificate?: ShownCertificate | undefined
}

/** A token that came by another way than headers (`mesh/auth.renew`), on a connection with or without a certificate. */
export const tokenAlone = (token: string, certificate?: ShownCertificate): Credentials => ({ tokens: [token], malformed: false, certificate })

const bearer = /^bearer +([^\s,]+)$/i
const subprotocol = 'bearer.'

/** The token of an Authorization header; undefined where it is none. The common form is read without a regular expression. */
function tokenOf (value: string): string | undefined {
  if (value.startsWith('Bearer ey') && !/[\s,]/.test(value.slice(7))) return value.slice(7)
  return bearer.exec(value.trim())?.[1]
}

/**
 * The one Authorization header of a request, as it came; undefined where there is none or more than one, or where a subprotocol could
 * carry another credential.
 */
export function onlyAuthorization (rawHeaders: readonly string[]): string | undefined {
  let found: string | undefined
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    if (name.length === 13 && name.toLowerCase() === 'authorization') {
      if (found !== undefined) return undefined
      found = rawHeaders[i + 1]
    } else if (name.length === 22 && name.toLowerCase() === 'sec-websocket-protocol') return undefined
  }
  return found
}

/**
 * The credentials of a request, from Node's `rawHeaders` (name, value, name, value…): `headers` shows the first of two
 * Authorization headers alone, and the second may be another's. For a websocket upgrade the subprotocol `bearer.<jwt>`
 * counts as well, since a browser cannot set headers there. Never the URL, never a cookie (DESIGN section 8).
 */
export function credentialsOf (rawHeaders: readonly string[], { websocket = false } = {}): Credentials {
  const tokens = new Set<string>()
  let malformed = false
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    const value = rawHeaders[i + 1]!
    // The length first: this runs for every header of every request.
    if (name.length === 13 && name.toLowerCase() === 'authorization') {
      const token = tokenOf(value)
      if (token === undefined) malformed = true
      else tokens.add(token)
    } else if (websocket && name.toLowerCase() === 'sec-websocket-protocol') {
      for (const entry of value.split(',').map((x) => x.trim())) {
        if (!entry.startsWith(subprotocol)) continue
        if (entry.length === subprotocol.length) malformed = true
        else tokens.add(entry.slice(subprotocol.length))
      }
    }
  }
  return { tokens: [...tokens], malformed }
}
