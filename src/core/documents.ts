/** Documents of the buckets: read once, in one way, with one clear sentence where one does not fit. */
import { FormatRegistry, TypeRegistry, type Static, type TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import stringify from 'safe-stable-stringify'
import { BadDocument } from './errors.js'
import { limits } from './limits.js'
import { printable } from './names.js'
import type { BucketName, Entry } from './ports.js'

/** JSON in one fixed form: members sorted, no white space. Equal documents have equal bytes. */
export const canonical = (value: unknown): string => stringify(value) as string

/**
 * What stands outside the strings of a JSON text, piece by piece. One pass, by hand: an expression that tries each quote
 * anew takes minutes over a text of escapes.
 */
function * outsideStrings (json: string): Generator<string> {
  let from = 0
  while (from < json.length) {
    const quote = json.indexOf('"', from)
    if (quote === -1) return yield json.slice(from)
    yield json.slice(from, quote)
    let end = quote + 1
    while (end < json.length && json[end] !== '"') end += json[end] === '\\' ? 2 : 1
    from = end + 1
  }
}

/** A decimal number as sign, digits without zeros around them, and exponent, so that 1.50 and 15e-1 are the same. */
function decimal (text: string): string {
  const [, sign, whole = '', fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? []
  const digits = (whole + fraction).replace(/^0+/, '')
  if (digits === '') return '0'
  // No /0+$/ here: it tries each run of zeros anew, and a number may be as long as a document.
  let end = digits.length
  while (digits[end - 1] === '0') end--
  // An exponent too large for Number to be exact belongs to a number that no double holds: it equals none that one does.
  return `${sign}${digits.slice(0, end)}e${Number(exponent) - fraction.length + digits.length - end}`
}

/** The first number in a valid JSON text that no double holds (its digits would not survive), cut short for a sentence. */
export function lostNumber (json: string): string | undefined {
  for (const piece of outsideStrings(json)) {
    for (const [text] of piece.matchAll(/-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g)) {
      // 15 significant digits always survive; only the rest is compared digit by digit.
      if (text.length <= 15 && !/e/i.test(text)) continue
      const held = Number(text)
      if (!Number.isFinite(held) || decimal(text) !== decimal(String(held))) return text.slice(0, 40)
    }
  }
  return undefined
}

/** Whether a valid JSON text nests deeper than the limit. */
function tooDeep (json: string): boolean {
  let depth = 0
  for (const piece of outsideStrings(json)) {
    for (const character of piece) {
      if (character === '[' || character === '{') depth++
      else if (character === ']' || character === '}') depth--
      if (depth > limits.documentDepth) return true
    }
  }
  return false
}

/**
 * A JSON text, parsed. Throws BadDocument, its message starting with `what`: no JSON, nested too deeply, or a number that
 * would not survive.
 */
export function parseJson (what: string, text: string): unknown {
  if (Buffer.byteLength(text) > limits.documentBytes) throw new BadDocument(`${what} is larger than ${limits.documentBytes} bytes`)
  if (text === '') throw new BadDocument(`${what} is empty: expected a JSON object`)
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    throw new BadDocument(`${what} is no JSON`)
  }
  // JSON.parse takes any depth; what comes after it may be recursive.
  if (tooDeep(text)) throw new BadDocument(`${what} nests deeper than ${limits.documentDepth} levels`)
  const lost = lostNumber(text)
  if (lost !== undefined) throw new BadDocument(`${what} holds the number ${lost}, which no double holds: write it as a string`)
  return parsed
}

// A schema of `OneOf` is "unsafe" to TypeBox, which checks such a one by a rule of ours or throws.
TypeRegistry.Set<{ enum: unknown[] }>('Unsafe', (schema, value) => schema.enum.includes(value))

// The one format that our schemas name; TypeBox knows none by itself.
FormatRegistry.Set('date-time', (text) => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text)))

/** Checks a parsed value against a schema; throws BadDocument that names the first member which does not fit. */
export function fitting<S extends TSchema> (what: string, schema: S, value: unknown): Static<S> {
  if (Value.Check(schema, value)) return value
  const first = Value.Errors(schema, value).First()
  const where = first?.path ? ` at ${printable(first.path, 200)}` : ''
  const allowed: unknown = first?.schema.enum
  const rule = Array.isArray(allowed) ? `expected one of ${allowed.join(', ')}` : first?.message ?? 'unexpected value'
  throw new BadDocument(`${what} does not fit${where}: ${rule.charAt(0).toLowerCase()}${rule.slice(1)}`)
}

/** The name of a document in a sentence. */
export const named = (bucket: BucketName, key: string): string => `${bucket} ${key}`

/** An entry's document, checked; throws BadDocument. */
export function readDocument<S extends TSchema> (bucket: BucketName, entry: Entry, schema: S): Static<S> {
  const what = named(bucket, entry.key)
  return fitting(what, schema, parseJson(what, entry.text))
}
