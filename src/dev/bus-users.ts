/**
 * The users of dev's bus that are not of modules, each with the rights of its role and no more. The bus begins with the operator alone:
 * which nodes and servers there are stands in its buckets. Then the others are added, before anything of theirs is started.
 */
import { writeFile } from 'node:fs/promises'
import type { BrokerEnvironment } from '../agents/broker-config.js'
import { confUser, renderUserList } from '../agents/user-list.js'
import { UsersFile } from '../agents/users-file.js'
import { rightsOf, type Role } from '../nats/rights.js'
import { readIfThere } from './kept.js'
import { provisionerSeedFile, seedFile, userKey, type BusRole } from './seeds.js'

type Files = Omit<BrokerEnvironment, 'BROKER_SERVER'>

/** What the users' rights depend on: where the gateway and the provisioners stand, and the name of the server. */
export interface Places { prefix: string, node: string, nodes: readonly string[], server: string }

const rolesOf: Record<Exclude<BusRole, 'operator'>, Role> = {
  gateway: 'take-in',
  broker: 'broker',
  builder: 'builder',
  indexer: 'indexer',
  inventory: 'operator'
}

const operator = async (dataDir: string): Promise<string> => confUser(await userKey(seedFile(dataDir, 'operator')))

async function fixedUsers (dataDir: string, { prefix, node, nodes, server }: Places): Promise<string> {
  const user = async (name: string, file: string, role: Role, node?: string): Promise<string> => {
    const key = await userKey(file)
    return `# ${name}\n${confUser(key, rightsOf(role, { user: key, prefix, node, server }))}`
  }
  const users = [`# operator, who may do all\n${await operator(dataDir)}`]
  for (const [name, role] of Object.entries(rolesOf)) users.push(await user(name, seedFile(dataDir, name as BusRole), role, node))
  for (const one of nodes) users.push(await user(`provisioner of ${one}`, provisionerSeedFile(dataDir, one), 'provisioner', one))
  return `${users.join('\n')}\n`
}

/** Writes the users that the server starts with: those of the run before, so that modules are on the bus at once, or the operator alone. */
export async function writeFirstUsers (dataDir: string, files: Files): Promise<void> {
  const first = await operator(dataDir)
  const [users, fixed] = await Promise.all([readIfThere(files.BROKER_USERS), readIfThere(files.BROKER_FIXED_USERS)])
  if (users?.includes(first) && fixed !== undefined) return
  await writeFile(files.BROKER_FIXED_USERS, `${first}\n`)
  await writeFile(files.BROKER_USERS, renderUserList(first, []).text)
}

/** Gives the running server all users that are not of modules; those of modules stay as they are. Resolves once it runs with them. */
export async function giveUsers (dataDir: string, files: Files, places: Places): Promise<void> {
  const fixed = await fixedUsers(dataDir, places)
  const [users, before] = await Promise.all([readIfThere(files.BROKER_USERS), readIfThere(files.BROKER_FIXED_USERS)])
  await writeFile(files.BROKER_FIXED_USERS, fixed)
  const isKnown = users !== undefined && before !== undefined && before.trim() !== '' && users.includes(before.trim())
  await new UsersFile({ ...files, BROKER_SERVER: places.server })
    .apply(isKnown ? users.replace(before.trim(), () => fixed.trim()) : renderUserList(fixed, []).text)
}
