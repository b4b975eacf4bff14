/**
 * All that core needs from outside. `src/nats` implements these on a bus; tests have a second implementation in memory.
 */
import type { Kind, ValueName } from './names.js'
import type { Revision } from './revision.js'
import type { Credential } from '../schemas/composition.js'

/** A provisioner's reply to one ask: the value's bytes as they came, or why it is refused. */
export type Answer =
  | { bytes: Uint8Array, revision: Revision }
  | { refused: string, code: 403 | 404, revision: Revision }

/** The provisioner's word that something moved: one value, or (without `key`) all of a kind. */
export interface Word { module: string, kind: Kind, key?: string, revision: Revision }

export interface Keys { config: string[], bound: string[] }

export interface Provisioner {
  /**
   * Asks once (a lost try is repeated inside). Rejects with a MeshError: `unavailable` (no bus, nobody answers),
   * `timeout` (not within ASK_TIMEOUT_MS) or `bad-answer`.
   */
  ask (name: ValueName): Promise<Answer>
  /** The keys of a module; rejects as `ask` does, or with `refused`. */
  list (module: string): Promise<Keys>
}

/** What the bus tells whoever keeps a view of values. */
export interface Hearing {
  /** Whether changes are heard for certain from now on: subscribed, and the server has confirmed it. */
  hears (confirmed: boolean): void
  word (word: Word): void
}

export const bucketNames = ['trunk', 'builds', 'inventory', 'settings', 'compositions', 'grants', 'takeins'] as const
export type BucketName = typeof bucketNames[number]

/** One key of a bucket as its leader has it. A delete or purge marker has `deleted` and an empty text. */
export interface Entry {
  key: string
  revision: number
  deleted: boolean
  text: string
  /** Of a composition's marker in a listing: what it should have taken the place of is still stored, since a purge was cut short. */
  lingers?: true
}

/** Keys of a bucket by name, markers among them, and the creation time of the bucket they were read from, in ms. */
export interface Listing extends Map<string, Entry> { epoch: number }

/**
 * The buckets, read from the stream's leader and written by compare-and-set. Every call rejects with Transient where it
 * may go better in a moment.
 */
export interface Store {
  /** Creation time of a bucket in ms. */
  epoch (bucket: BucketName): Promise<number>
  read (bucket: BucketName, key: string): Promise<Entry | undefined>
  /** All keys that a filter of tokens and `*` matches. */
  readAll (bucket: BucketName, filter: string): Promise<Listing>
  /** Writes where the key's last revision is still `previous` (0: never written); rejects with Conflict where it is not. */
  write (bucket: BucketName, key: string, text: string, previous: number): Promise<number>
  /** Removes the key with its history, under the same condition. */
  purge (bucket: BucketName, key: string, previous: number): Promise<number>
  /** Removes all that is stored under a key up to a revision, markers too, and leaves no trace: who follows the bucket hears nothing. */
  erase (bucket: BucketName, key: string, upTo: number): Promise<void>
}

/** The broker agents beside the seat's servers (DESIGN section 4). */
export interface Brokers {
  /** Resolves once `server` runs with the users of that revision or a later one; rejects with the reason, or after 5 s of silence. */
  applied (server: string, revision: Revision): Promise<void>
}

/** Makes a bus user whose seed only the node with this public curve key can read (DESIGN section 5). */
export type MakeCredential = (to: string) => Credential

/** Wall clock in ms; tests hold it still. */
export type Now = () => number
