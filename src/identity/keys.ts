/** The keys of one JWKS, kept current (DESIGN section 8). */
import { messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { Now } from '../core/ports.js'
import { parseJwks, type Algorithm, type VerifyKey } from './jwks.js'
import { sourceOf } from './source.js'

export interface KeySetOptions {
  /** Called after `open`, when other keys count from now on: what the former ones vouched for is to be forgotten. */
  changed?: () => void
  /** Told, once for each kind of trouble, that the keys cannot be read again and the last good ones stay. */
  trouble?: (sentence: string) => void
  now?: Now
}

// What no file's version is.
const unread = 'unread'

/**
 * One JWKS, from a file or URL. There is no timer: it looks when it is asked, so that a removed key is gone by the next
 * request however long none came. While connections live their beat asks.
 */
export class KeySet {
  #keys: VerifyKey[] = []
  #thumbprints = new Set<string>()
  #text: string | undefined
  #version: string | undefined = unread
  /** One read at a time: all who need it wait for the same. */
  #reading: Promise<void> | undefined
  /** When that read began. */
  #readingSince = 0
  /** The file was seen to differ from what was read. */
  #outdated = false
  #lookedAt = -Infinity
  #readAt = -Infinity
  #askedAt = -Infinity
  #lastTrouble = ''
  readonly #source
  readonly #changed
  readonly #trouble
  readonly #now

  private constructor (location: string, { changed = () => {}, trouble = () => {}, now = Date.now }: KeySetOptions) {
    this.#source = sourceOf(location)
    this.#changed = changed
    this.#trouble = trouble
    this.#now = now
  }

  /** Reads it for the first time; rejects with one sentence that names the file or URL. */
  static async open (location: string, options: KeySetOptions = {}): Promise<KeySet> {
    const set = new KeySet(location, options)
    try {
      await set.#load()
    } catch (error) {
      throw new Error(`${set.#source.name} ${messageOf(error)}`)
    }
    return set
  }

  /** Whether the keys are as current as they can be; where not, `current()` makes them so. Cheap: every request asks. */
  isCurrent (): boolean {
    const now = this.#now()
    if (!this.#source.isFile) {
      // A read of young keys is one that a stranger's unknown key id asked for: nobody else waits for it.
      if (now - this.#readAt < limits.jwksRefreshMs) return true
      return this.#reading !== undefined && now - this.#readingSince >= limits.jwksPatienceMs
    }
    if (this.#reading || this.#outdated) return false
    if (now - this.#lookedAt < limits.jwksStatMs) return true
    this.#lookedAt = now
    this.#outdated = this.#source.version() !== this.#version
    return !this.#outdated
  }

  /**
   * Resolves once the keys are as current as they can be; never rejects: the last good ones stay. A provider that hangs is waited for a
   * moment, and its answer counts when it comes.
   */
  async current (): Promise<void> {
    if (this.isCurrent()) return
    const reading = this.#reread()
    if (this.#source.isFile) return await reading
    let timer: NodeJS.Timeout | undefined
    await Promise.race([reading, new Promise<void>((resolve) => { timer = setTimeout(resolve, limits.jwksPatienceMs) })])
    clearTimeout(timer)
  }

  /** Looks now, whether or not it looked a moment ago. For a timer of about a second: a live connection makes no requests. */
  async refresh (): Promise<void> {
    this.#lookedAt = -Infinity
    await this.current()
  }

  /** Whether the key with this thumbprint counts now. */
  has (thumbprint: string): boolean {
    return this.#thumbprints.has(thumbprint)
  }

  knows (kid: string): boolean {
    return this.#keys.some((key) => key.kid === kid)
  }

  /** Reads again because a token names a key that is not here: at most once in 30 s, whoever asks how often. */
  async lookFor (kid: string): Promise<void> {
    if (this.#reading) await this.#reading
    if (this.knows(kid) || this.#now() - this.#askedAt < limits.jwksCooldownMs) return
    this.#askedAt = this.#now()
    await this.#reread()
  }

  /** The keys a token may be signed with: those of its key id, or where it has none, all of its algorithm. */
  candidates (kid: string | undefined, alg: Algorithm): VerifyKey[] {
    return this.#keys.filter((key) => key.alg === alg && (kid === undefined || key.kid === kid)).slice(0, limits.keysTried)
  }

  #reread (): Promise<void> {
    if (this.#reading) return this.#reading
    this.#readingSince = this.#now()
    this.#reading = this.#load()
      .then(() => { this.#lastTrouble = '' }, (error) => {
        // Not asked again at once: a provider that is down is no reason for each request to wait. Keys that are young stay so.
        this.#readAt = Math.max(this.#readAt, this.#now() - limits.jwksRefreshMs + limits.jwksCooldownMs)
        // A file is tried at each look: its rights may be set right without a write.
        this.#version = unread
        const sentence = `The keys of ${this.#source.name} stay as they are: it ${messageOf(error)}`
        if (sentence !== this.#lastTrouble) this.#trouble(sentence)
        this.#lastTrouble = sentence
      })
      .finally(() => { this.#reading = undefined })
    return this.#reading
  }

  async #load (): Promise<void> {
    this.#outdated = false
    // Before the text: a write in between then differs from it, and is seen by the next look.
    this.#version = this.#source.version()
    const text = await this.#source.read()
    const keys = text === this.#text ? this.#keys : await parseJwks(text)
    // An empty set is a mistake or a file that is being written: to take it would end every connection of the mesh.
    if (keys.length === 0) throw new Error('holds no key that is taken: expected public keys for EdDSA, ES256, ES384 or RS256 (2048 bits or more)')
    this.#readAt = this.#now()
    if (text === this.#text) return
    const first = this.#text === undefined
    this.#text = text
    this.#keys = keys
    this.#thumbprints = new Set(keys.map(({ thumbprint }) => thumbprint))
    if (!first) this.#changed()
  }
}
