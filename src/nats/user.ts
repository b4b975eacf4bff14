/** Who a process is on the bus: its credentials, read again at each attempt to connect, and the inboxes that are its own. */
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { credsAuthenticator, nkeyAuthenticator, type Authenticator, type ConnectionOptions, type NatsConnection } from 'nats'
import { fromPublic, fromSeed } from 'nkeys.js'
import { ConfigError, type Environment } from '../config.js'

export interface BusUser {
  /** The public key (`U…`) of the user when the files were read first; undefined without credentials. */
  key?: string
  /** The user that was shown to the bus last: another one where the files were exchanged. */
  shown (): string | undefined
  authenticator?: Authenticator
}

const decoder = new TextDecoder()

/** Whether a text is the public key of a user, its checksum included. */
export function isUserKey (text: unknown): text is string {
  if (typeof text !== 'string' || !/^U[A-Z2-7]{55}$/.test(text)) return false
  try {
    fromPublic(text)
    return true
  } catch {
    return false
  }
}

/** What the subject of a user's JWT is: its public key. */
function keyOfCredentials (file: string, text: string): string {
  const [, payload = ''] = /-{3,}BEGIN NATS USER JWT-{3,}\s+[\w-]+\.([\w-]+)\.[\w-]+/.exec(text) ?? []
  try {
    const { sub } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { sub?: unknown }
    if (isUserKey(sub)) return sub
  } catch { /* said below */ }
  throw new ConfigError(`NATS_CREDS is ${JSON.stringify(file)}, but that file holds no user's JWT: expected a credentials file as "nsc generate creds" writes it`)
}

function keyOfSeed (file: string, seed: Uint8Array): string {
  try {
    const key = fromSeed(seed).getPublicKey()
    if (key.startsWith('U')) return key
  } catch { /* said below; the library's error may hold a part of it */ }
  throw new ConfigError(`NATS_NKEY_SEED_FILE is ${JSON.stringify(file)}, but that file holds no user's seed: expected a line that begins with SU`)
}

/**
 * The user that the environment names. Throws a ConfigError where a file holds none. The authenticator reads the file at each
 * attempt, so that credentials can be exchanged while the process runs.
 */
export function busUser ({ NATS_CREDS: creds, NATS_NKEY_SEED_FILE: seedFile }: Pick<Environment, 'NATS_CREDS' | 'NATS_NKEY_SEED_FILE'>): BusUser {
  if (creds === undefined && seedFile === undefined) return { shown: () => undefined }
  const read = (): { key: string, authenticator: Authenticator } => {
    if (creds !== undefined) {
      const bytes = readFileSync(creds)
      return { key: keyOfCredentials(creds, decoder.decode(bytes)), authenticator: credsAuthenticator(bytes) }
    }
    const seed = Buffer.from(readFileSync(seedFile as string, 'utf8').trim())
    return { key: keyOfSeed(seedFile as string, seed), authenticator: nkeyAuthenticator(seed) }
  }
  let last = read()
  return {
    key: last.key,
    shown: () => last.key,
    authenticator: (nonce) => {
      // The library closes for good where this throws. A file that is just being exchanged is read again at the next attempt.
      try { last = read() } catch { /* what it held before is shown once more */ }
      return last.authenticator(nonce)
    }
  }
}

/** The only inboxes that a user may have: `_INBOX.<its key>.>` (see `rights.ts`). Without a user there is nothing to tell them apart. */
export const inboxPrefix = (key: string | undefined): string => key === undefined ? '_INBOX' : `_INBOX.${key}`

/**
 * A new inbox on a connection. It is random, and not the next of a row as the library's are: whoever is asked sees the
 * inbox he answers to, and must not be able to guess another one of the same process and answer in somebody else's stead.
 */
export function newInbox (nc: NatsConnection): string {
  const { options } = nc as unknown as { options?: ConnectionOptions }
  return `${options?.inboxPrefix ?? inboxPrefix(undefined)}.${unguessable()}`
}

/** A name for a consumer: who may delete consumers of a stream must not be able to guess another's. */
export const newConsumerName = (): string => unguessable()

const unguessable = (): string => randomBytes(16).toString('base64url')
