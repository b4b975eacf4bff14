/** Documents of the buckets: read once, in one way, with one clear sentence where one does not fit. */
import type { Static, TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import stringify from 'safe-stable-stringify'
import { BadDocument } from './errors.js'
import { limits } from './limits.js'
import type { BucketName, Entry } from './ports.js'

/** JSON in one fixed form: members sorted, no white space. Equal documents have equal bytes. */
export const canonical = (value: unknown): string => stringify(value) as string

// Strings are passed over whole, so what is left that looks like a number is one.
const numbersOf = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

/** A decimal number as sign, digits without zeros around them, and exponent, so that 1.50 and 15e-1 are the same. */
function decimal (text: string): string {
  const [, sign, whole = '', fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? []
  const digits = (whole + fraction).replace(/^0+/, '')
  const trimmed = digits.replace(/0+$/, '')
  if (trimmed === '') return '0'
  return `${sign}${trimmed}e${BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - trimmed.length)}`
}

/** The first number in a JSON text that no double holds (its digits would not survive), cut short for a sentence. */
export function lostNumber (json: string): string | undefined {
  for (const [text] of json.matchAll(numbersOf)) {
    if (text.startsWith('"')) continue
    const held = Number(text)
    // 15 significant digits always survive; only the rest is compared digit by digit.
    if (text.length <= 15 && !/e/i.test(text)) continue
    if (!Number.isFinite(held) || decimal(text) !== decimal(String(held))) return text.slice(0, 40)
  }
  return undefined
}

/** Whether a JSON text nests no deeper than the limit; strings are passed over. */
function tooDeep (json: string): boolean {
  let depth = 0
  for (const [token] of json.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}]/gs)) {
    if (token === '[' || token === '{') { if (++depth > limits.documentDepth) return true } else if (token === ']' || token === '}') depth--
  }
  return false
}

/**
 * A JSON text, parsed. Throws BadDocument, its message starting with `what`: no JSON, nested too deeply, or a number that
 * would not survive.
 */
export function parseJson (what: string, text: string): unknown {
  if (text.length > limits.documentBytes) throw new BadDocument(`${what} is larger than ${limits.documentBytes} bytes`)
  if (text === '') throw new BadDocument(`${what} is empty: expected a JSON object`)
  if (tooDeep(text)) throw new BadDocument(`${what} nests deeper than ${limits.documentDepth} levels`)
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    throw new BadDocument(`${what} is no JSON`)
  }
  const lost = lostNumber(text)
  if (lost !== undefined) throw new BadDocument(`${what} holds the number ${lost}, which no double holds: write it as a string`)
  return parsed
}

/** Checks a parsed value against a schema; throws BadDocument that names the first member which does not fit. */
export function fitting<S extends TSchema> (what: string, schema: S, value: unknown): Static<S> {
  if (Value.Check(schema, value)) return value
  const first = Value.Errors(schema, value).First()
  const where = first?.path ? ` at ${first.path.slice(0, 200)}` : ''
  throw new BadDocument(`${what} does not fit${where}: ${(first?.message ?? 'unexpected value').toLowerCase()}`)
}

/** The name of a document in a sentence. */
export const named = (bucket: BucketName, key: string): string => `${bucket} ${key}`

/** An entry's document, checked; throws BadDocument. */
export function readDocument<S extends TSchema> (bucket: BucketName, entry: Entry, schema: S): Static<S> {
  const what = named(bucket, entry.key)
  return fitting(what, schema, parseJson(what, entry.text))
}
