/**
 * Which web pages may open a websocket. A page of any origin can; the browser says which, and only this check stops it
 * (DESIGN section 7). The `Host` header is never looked at: a rebound name would pass.
 */
import { corsOrigins, type Environment } from '../config.js'

const loopback = ['127.0.0.1', '::1', 'localhost']
const wildcard = ['0.0.0.0', '::', '']

/** The origins that may, given the port that is really listened on. */
export function allowedOrigins (config: Pick<Environment, 'PUBLIC_URL' | 'CORS_ORIGINS' | 'HOST' | 'TLS_CERT'>, port: number): Set<string> {
  const origins = new Set(corsOrigins(config))
  if (config.PUBLIC_URL !== undefined) return origins.add(new URL(config.PUBLIC_URL).origin)
  const hosts = loopback.includes(config.HOST) ? loopback : wildcard.includes(config.HOST) ? [] : [config.HOST]
  const scheme = config.TLS_CERT === undefined ? 'http' : 'https'
  for (const host of hosts) origins.add(new URL(`${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`).origin)
  return origins
}
