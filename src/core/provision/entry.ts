import type { MeshError } from '../errors.js'
import type { ValueName } from '../names.js'
import { isOlder, youngest, type Revision } from '../revision.js'
import type { Said } from './said.js'

/** One who waits for an answer, until a time in ms. */
export interface Waiter { deadline: number, resolve (): void, reject (error: MeshError): void }

/** One who is told when what stands changed: it compares the entry with what it handed last. */
export interface Watcher { sync (entry: Entry): void }

/** An ask from its beginning (the question went out) to its end. */
export interface Ask {
  startedAt: number
  /** Which hearing it began under: an answer counts only while changes were heard from before the question on. */
  hearing: number
  /** The youngest word that was heard before the question went out: an answer older than that is too old. */
  known: Revision | undefined
  /** A word came after the question: the answer may be from before it. */
  overtaken: boolean
  /** A no-cache get may join while the question has not gone out. */
  begun: boolean
}

/** All that the view knows of one value. The view alone changes it. */
export class Entry {
  /** What was accepted last, and its revision: nothing older is ever handed. */
  said: Said | undefined
  revision: Revision | undefined
  /** The youngest word heard of it. */
  heard: Revision | undefined
  /** When a word younger than all that was known came last, in ms: until then the bucket had not been rewound. */
  newsAt = -Infinity
  /** Known current: it may be served from memory. */
  current = false
  /** When it was last confirmed by an answer, and until when it was known current (undefined while it is), in ms. */
  confirmedAt = 0
  currentUntil: number | undefined
  /** Since when its watches are told that it cannot be kept current; undefined while they need not be. */
  staleSince: number | undefined

  ask: Ask | undefined
  /** Those whom the ask in flight (or the next try after an answer that was too old) serves, and those who need a later one. */
  waiters: Waiter[] = []
  later: Waiter[] = []
  /** When to ask again by itself, and the pause that led there, in ms. */
  retryAt: number | undefined
  pauseMs = 0
  /** Since when answers are older than what was heard or handed. */
  laggingSince: number | undefined
  /** When the last such answer came. */
  laggedAt = 0

  readonly watchers = new Set<Watcher>()

  constructor (readonly name: ValueName) {}

  get watched (): boolean { return this.watchers.size > 0 }
  get waitedFor (): boolean { return this.waiters.length > 0 || this.later.length > 0 }

  /** Somebody watches it, waits for it, or it is being asked. */
  get wanted (): boolean { return this.watched || this.waitedFor || this.ask !== undefined }

  /** It is no longer known current; `until` is when it last was. */
  lose (until: number): void {
    if (!this.current) return
    this.current = false
    this.currentUntil = until
  }

  hear (revision: Revision, now: number): void {
    const known = youngest(this.heard, this.revision)
    if (!known || isOlder(known, revision)) this.newsAt = now
    this.heard = youngest(this.heard, revision)
  }
}
