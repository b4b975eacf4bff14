/** A bus in operator mode: accounts and users are JWTs, signed with nkeys, and users come with a credentials file. */
import { randomUUID } from 'node:crypto'
import { createAccount, createOperator, createUser, type KeyPair } from 'nkeys.js'
import type { Rights } from '../../../src/nats/rights.js'
import { encode } from './client.js'

const base64 = (content: Uint8Array | string): string => Buffer.from(content).toString('base64url')

/** A JWT as nats-server reads it: signed by `issuer`, about the key `subject`. */
function jwt (issuer: KeyPair, subject: string, name: string, nats: object): string {
  const iat = Math.floor(Date.now() / 1000)
  const claims = { jti: randomUUID(), iat, iss: issuer.getPublicKey(), name, sub: subject, nats: { version: 2, ...nats } }
  const signed = `${base64(JSON.stringify({ typ: 'JWT', alg: 'ed25519-nkey' }))}.${base64(JSON.stringify(claims))}`
  return `${signed}.${base64(issuer.sign(encode(signed)))}`
}

const unlimited = { subs: -1, data: -1, payload: -1 }
const account = { ...unlimited, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 }
const withJetStream = { ...account, mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 }

export class OperatorMode {
  readonly #operator = createOperator()
  readonly #account = createAccount()
  readonly #system = createAccount()

  /** The server's configuration: an account with JetStream, and the server's own. */
  conf (): string {
    const [mesh, system] = [this.#account.getPublicKey(), this.#system.getPublicKey()]
    const signed = (key: string, name: string, limits: object): string =>
      jwt(this.#operator, key, name, { type: 'account', limits, default_permissions: { pub: {}, sub: {} } })
    const operator = jwt(this.#operator, this.#operator.getPublicKey(), 'operator', { type: 'operator', system_account: system })
    return `operator: ${operator}
system_account: ${system}
resolver: MEMORY
resolver_preload: { ${mesh}: ${signed(mesh, 'mesh', withJetStream)}, ${system}: ${signed(system, 'system', account)} }`
  }

  /** A new user's credentials file; without rights it may do all. */
  creds (rights?: (user: string) => Rights): { user: string, text: string } {
    const pair = createUser()
    const user = pair.getPublicKey()
    const { publish, subscribe } = rights?.(user) ?? {}
    const allowed = { pub: publish ? { allow: publish } : {}, sub: subscribe ? { allow: subscribe } : {} }
    const token = jwt(this.#account, user, 'user', { type: 'user', ...unlimited, ...allowed })
    return {
      user,
      text: `-----BEGIN NATS USER JWT-----\n${token}\n------END NATS USER JWT------\n\n` +
        `-----BEGIN USER NKEY SEED-----\n${Buffer.from(pair.getSeed()).toString()}\n------END USER NKEY SEED------\n`
    }
  }
}
