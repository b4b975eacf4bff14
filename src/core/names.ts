import { limits } from './limits.js'

/** Kinds that are asked of a provisioner. `secret` is known as a kind, too, and always refused (DESIGN section 2). */
export const readableKinds = ['config', 'bound'] as const
export type Kind = typeof readableKinds[number]

/** One value of one module: what is asked, watched and said to have moved. */
export interface ValueName { module: string, kind: Kind, key: string }

/** What a module, a node or a nats-server may be called; nothing else ever reaches a subject (DESIGN section 4). */
export const namePattern = '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'
const nameExpression = new RegExp(namePattern)
export const isName = (text: unknown): text is string => typeof text === 'string' && nameExpression.test(text)

/** A fingerprint of the one form that is taken in: `fp2-` and 64 hex digits (DESIGN section 5). */
export const fingerprintPattern = '^fp2-[0-9a-f]{64}$'
const fingerprintExpression = new RegExp(fingerprintPattern)
export const fingerprintPrefix = 'fp2-'
export const isFingerprint = (text: unknown): text is string => typeof text === 'string' && fingerprintExpression.test(text)

// A key travels in payloads only, so any character may stand in it but those that harm a log, a terminal or a protocol.
// eslint-disable-next-line no-control-regex
const controls = /[\u0000-\u001f\u007f-\u009f]/
const loneSurrogates = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/

/**
 * Why a text is no key, as a clause that completes "the key …"; undefined where it is one. 1 to 256 code points, no
 * control characters, no half of a surrogate pair, never normalised (DESIGN section 4). The text is not said back.
 */
export function whyNoKey (text: unknown): string | undefined {
  if (typeof text !== 'string') return 'must be a string'
  if (text === '') return 'is empty: name one, 1 to 256 characters long'
  // Two UTF-16 units at most make a code point, so most long keys need no counting.
  if (text.length > 2 * limits.keyCodePoints || (text.length > limits.keyCodePoints && [...text].length > limits.keyCodePoints)) {
    return `is longer than ${limits.keyCodePoints} characters`
  }
  if (holdsControl(text)) return 'holds a control character'
  if (holdsLoneSurrogate(text)) return 'holds half a surrogate pair'
  return undefined
}

/** Whether a text holds a control character (C0, DEL, C1), which harms a log, a terminal or a protocol. */
export const holdsControl = (text: string): boolean => controls.test(text)

/** Whether a text holds half a surrogate pair: as UTF-8 it would turn into another text. */
export const holdsLoneSurrogate = (text: string): boolean => loneSurrogates.test(text)

// What a log or a terminal would act on, line terminators that JSON leaves alone among it.
const unprintable = new RegExp(`${controls.source}|[\\u2028\\u2029]|${loneSurrogates.source}`, 'g')

/** Somebody else's text for a sentence of ours: cut to `most` UTF-16 units, and what would leave its line escaped. */
export function printable (text: string, most = 80): string {
  const cut = text.length > most ? `${text.slice(0, most)}…` : text
  return cut.replace(unprintable, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** The same in quotes: a key or a subject. */
export const quoted = (text: string): string => `"${printable(text)}"`

const abbreviation = /^[0-9a-f]{7,}$/i

/** Whether two commit ids name one commit as git would have it: one may abbreviate the other, 7 hex digits or more. */
export function sameCommit (a: string, b: string): boolean {
  if (a === b) return true
  if (!abbreviation.test(a) || !abbreviation.test(b)) return false
  const [short, long] = a.length <= b.length ? [a, b] : [b, a]
  return long.toLowerCase().startsWith(short.toLowerCase())
}

/** A fingerprint or commit short enough for a sentence. */
export const short = (id: string): string => id.startsWith(fingerprintPrefix) ? id.slice(0, 12) : id.slice(0, 8)
