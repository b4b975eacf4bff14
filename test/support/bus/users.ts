/** Users of the bus by their roles, on a server that knows nobody else, and what the server refuses them. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { nkeyAuthenticator, type NatsConnection } from 'nats'
import { createUser, fromSeed } from 'nkeys.js'
import { confUser } from '../../../src/agents/user-list.js'
import { rightsOf, roles, type Role } from '../../../src/nats/rights.js'
import { inboxPrefix } from '../../../src/nats/user.js'
import { temporaryFolder } from '../machine.js'
import type { Owner } from '../owner.js'
import { client, encode } from './client.js'

/** `root` may do all. */
export type Who = Role | 'root'

export interface User { key: string, seed: string, seedFile: string }

/** A user for each role, of node-a and of the server s1, and `root`; and the configuration that makes a server know them. */
export class Users {
  readonly #users = new Map<Who, User>()

  constructor (t: Owner) {
    const folder = temporaryFolder(t, 'users')
    for (const who of [...Object.keys(roles) as Role[], 'root'] as const) {
      const pair = createUser()
      const seed = Buffer.from(pair.getSeed()).toString()
      const seedFile = join(folder, `${who}.nk`)
      writeFileSync(seedFile, seed)
      this.#users.set(who, { key: pair.getPublicKey(), seed, seedFile })
    }
  }

  of (who: Who): User { return this.#users.get(who) as User }

  /** The `authorization` block; `changed` gives some of them the rights of another role, and who is `gone` is not in it. */
  conf (changed: Partial<Record<Role, Role>> = {}, gone: Role[] = []): string {
    const rights = (role: Role, user: string) => rightsOf(changed[role] ?? role, { user, prefix: 'mesh_', node: 'node-a', server: 's1' })
    const lines = [...this.#users].filter(([who]) => !gone.includes(who as Role)).map(([who, { key }]) => who === 'root' ? confUser(key) : confUser(key, rights(who, key)))
    return `authorization { users: [\n${lines.join('\n')}\n] }`
  }

  connect (t: Owner, url: string, who: Who): Promise<NatsConnection> { return asUser(t, url, this.of(who).seed) }
}

/** A connection with a user's seed, and its own inboxes. */
export function asUser (t: Owner, url: string, seed: string): Promise<NatsConnection> {
  const key = fromSeed(encode(seed)).getPublicKey()
  return client(t, url, { authenticator: nkeyAuthenticator(encode(seed)), inboxPrefix: inboxPrefix(key), reconnect: false })
}
