/** What dev says when all is there: where it is, and lines that can be pasted into another terminal. */
import { relative } from 'node:path'
import type { Environment } from '../config.js'
import { packageRoot } from '../package-info.js'

export interface Tried {
  config: Environment
  url: string
  node: string
  busPort: number
  dataDir: string
  /** A value that can be read now. */
  value?: { module: string, key: string }
  /** A module that can be taken in. */
  module?: string
}

const inQuotes = (text: string): string => /^[\w:/.%~@+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`

/** How this very program is called from the folder it runs in. */
function calls (command: string, fromClone: boolean): string {
  return fromClone ? `npm run -s ${command} --` : `mesh-gateway ${command}`
}

/** The variables that are not at their defaults, and that a token depends on. */
function variables ({ config, dataDir }: Tried): string {
  const changed: Record<string, [string | undefined, string]> = {
    DATA_DIR: [relative(process.cwd(), dataDir).startsWith('..') ? dataDir : relative(process.cwd(), dataDir), '.data'],
    TRUST_DOMAIN: [config.TRUST_DOMAIN, 'mesh.local'],
    AUTH_AUDIENCE: [config.AUTH_AUDIENCE, 'mesh-gateway'],
    AUTH_ISSUER: [config.AUTH_ISSUER, '']
  }
  return Object.entries(changed).filter(([, [now, usual]]) => (now ?? '') !== usual).map(([name, [now = '']]) => `${name}=${inQuotes(now)} `).join('')
}

export function welcome (tried: Tried, fromClone = process.cwd() === packageRoot): string[] {
  const { config, url, node, busPort, value, module } = tried
  // The gateway's own certificate, whoever signed it.
  const curl = config.TLS_CERT === undefined ? 'curl' : `curl --cacert ${inQuotes(config.TLS_CERT)}`
  const set = variables(tried)
  const bearer = (whom: string): string => `-H "Authorization: Bearer $(${set}${calls('token', fromClone)} ${whom})"`
  const lines = [`${node}'s gateway listens at ${url}, its bus at nats://127.0.0.1:${busPort}. Ctrl-C ends it all.`]
  if (value || module) lines.push(`To try it, from another terminal${fromClone ? ' in this folder' : ''}:`)
  if (value) {
    const address = `${url}/provision/config`
    const one = inQuotes(`${address}/${encodeURIComponent(value.key)}`)
    lines.push(
      `  # a value of ${value.module}, and the keys it may read`,
      `  ${curl} -s ${bearer(`--module ${value.module}`)} ${one}`,
      `  ${curl} -s ${bearer(`--module ${value.module}`)} ${address}`,
      '  # the same value and each of its changes',
      `  ${curl} -sN ${bearer(`--module ${value.module}`)} -H "Accept: text/event-stream" ${one}`
    )
  }
  if (module) {
    lines.push(
      '  # as an operator: take a module in',
      `  ${curl} -s -X POST ${bearer('--operator alice')} ${url}/modules/${module}/take-in`
    )
  }
  return lines
}
