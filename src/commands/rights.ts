/** `mesh-gateway rights ROLE`: a role's user with its exact rights, as nats-server's configuration takes it. */
import { confUser } from '../agents/user-list.js'
import { loadConfig } from '../config.js'
import { isName, namePattern } from '../core/names.js'
import { rightsOf, roles, type Role } from '../nats/rights.js'
import { isUserKey } from '../nats/user.js'
import { UsageError, type Command } from './command.js'

const known = Object.keys(roles).join(', ')

export const command: Command = {
  positionals: ['ROLE'],
  options: {
    user: { type: 'string', about: "the user's public key, U…; its seed stays where the process is that uses it" },
    node: { type: 'string', about: 'the node of a gateway, take-in or provisioner' },
    server: { type: 'string', about: 'the nats-server of a broker, as the seat names it' }
  },
  async run ({ positionals: [role = ''], options }) {
    if (!Object.hasOwn(roles, role)) throw new UsageError(`rights: "${role}" is no role: expected ${known}`)
    const { needs, about } = roles[role as Role]
    const { user } = options
    if (!isUserKey(user)) throw new UsageError(`rights: --user is ${user === undefined ? 'missing' : `"${String(user)}"`}, but it takes the public key of a user, U and 55 more characters`)
    for (const place of ['node', 'server'] as const) {
      const name = options[place]
      if (needs === place && name === undefined) throw new UsageError(`rights: ${role} needs --${place} NAME`)
      if (needs !== place && name !== undefined) throw new UsageError(`rights: ${role} does not take --${place}`)
      if (name !== undefined && !isName(name)) throw new UsageError(`rights: --${place} is "${String(name)}", but it takes a name that matches ${namePattern}`)
    }
    const { node, server } = options as { node?: string, server?: string }
    const { MESH_PREFIX: prefix } = loadConfig(process.env)
    const rights = rightsOf(role as Role, { user, prefix, ...(node ? { node } : {}), ...(server ? { server } : {}) })
    process.stdout.write(`# ${about}\n${confUser(user, rights)}\n`)
  }
}
