import { loadConfig } from '../config.js'
import { isName, namePattern } from '../core/names.js'
import { mintToken } from '../dev/signing-key.js'
import { UsageError, type Command, type Given } from './command.js'

const roles = ['module', 'operator', 'reader'] as const
const seconds: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Seconds of a time such as 60s, 10m, 1h or 7d. */
function ttl (text: string): number {
  const [, count, unit] = /^([1-9]\d{0,6})([smhd])$/.exec(text) ?? []
  if (count === undefined || unit === undefined) throw new UsageError(`token: --ttl is "${text}", but it takes a number and s, m, h or d, such as 60s`)
  return Number(count) * seconds[unit]!
}

function subjectOf (options: Given['options']): { role: typeof roles[number], name: string } {
  const given = roles.filter((role) => options[role] !== undefined)
  const [role] = given
  if (role === undefined || given.length > 1) throw new UsageError('token needs one of --module NAME, --operator NAME and --reader NAME')
  const name = options[role]
  if (!isName(name)) throw new UsageError(`token: --${role} is "${String(name)}", but it takes a name that matches ${namePattern}`)
  return { role, name }
}

export const command: Command = {
  options: {
    module: { type: 'string', about: 'for a module: it reads its own values' },
    operator: { type: 'string', about: 'for an operator: takes modules in and sets values' },
    reader: { type: 'string', about: 'for a reader: sees the state of the mesh, plans and records' },
    ttl: { type: 'string', about: 'how long it lives: 60s, 10m, 1h (the default), 7d' }
  },
  async run ({ options }) {
    const subject = subjectOf(options)
    const lifetime = ttl(String(options.ttl ?? '1h'))
    process.stdout.write(`${await mintToken(loadConfig(process.env), subject, lifetime)}\n`)
  }
}
