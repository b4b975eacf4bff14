/** What hostile input is made of: texts, JSON and bytes that are odd by themselves, and good ones with a few edits. */
import fc from 'fast-check'

/** Texts that have broken something somewhere. */
const odd = [
  '', ' ', '.', '..', '*', '>', 'a.b', 'a b', '__proto__', 'constructor', 'toString', 'null', 'true', '-1', '1e400', '\u0000', '\r\n', '\t', '\u007f',
  '\u0085', '\u2028', '\ufeff', '\ud800', '\udc00', '\u{1f600}', 'caf\u00e9', 'cafe\u0301', '"', '\\', '/', '%', '%2F', '%00', '<b>', '$SYS.>',
  '$JS.API.>', '_INBOX.>', 'mesh.provision.node-a.m1.get', 'k'.repeat(257), 'a'.repeat(64), '9'.repeat(400)
]

/** A text of any characters, halves of surrogate pairs among them. */
export const anyText: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...odd) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 24 }) },
  { weight: 1, arbitrary: fc.string({ maxLength: 24 }) },
  { weight: 1, arbitrary: fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 6 }).map((units) => String.fromCharCode(...units)) }
)

/** What is drawn at times, and mostly left out. */
export const mostlyNot = <T>(drawn: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: drawn })

const numbers = fc.oneof(fc.integer(), fc.double(), fc.constantFrom(0, -0, 1.5, 2 ** 53, -(2 ** 31), 1e300))

/** Any JSON value; `leaf` stands among its leaves. */
export const anyJson = (leaf: fc.Arbitrary<unknown> = anyText): fc.Arbitrary<unknown> => fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.oneof(leaf, numbers, fc.boolean(), fc.constant(null)),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(anyText, tie('value'), { maxKeys: 4 })
  )
})).value

/** JSON texts that no JSON.stringify makes. */
export const oddJson: fc.Arbitrary<string> = fc.constantFrom(
  '', ' ', '{', '[]', 'null', '{}', '{"a":1,"a":2}', '[1,2', '{"__proto__":{"x":1}}', '{"constructor":{"prototype":{}}}', '1e400', '12345678901234567890',
  '"\\ud800"', '\ufeff{}', `${'['.repeat(2000)}${']'.repeat(2000)}`, `${'{"a":'.repeat(100)}1${'}'.repeat(100)}`, '-', '01', "{'a':1}", '{"a":1}x', '//', '"'
)

type Edit = { at: number, cut: number, put: Buffer }

const pieces = fc.oneof(
  anyText.map((text) => Buffer.from(text)),
  fc.uint8Array({ maxLength: 6 }).map((bytes) => Buffer.from(bytes)),
  fc.constantFrom('\r\n', '\r\n\r\n', ': ', ',', '{', '}', '[', ']', '"', ':', '\0', 'HTTP/1.1',
    'GET / HTTP/1.1\r\n', '0\r\n\r\n', 'ffffffff\r\n').map((text) => Buffer.from(text))
)

const edit: fc.Arbitrary<Edit> = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }), cut: fc.oneof(...[0, 4, 200].map((max) => fc.integer({ min: 0, max }))), put: pieces
})

function edited (bytes: Buffer, edits: Edit[]): Buffer {
  for (const { at, cut, put } of edits) {
    const from = Math.floor(at * bytes.length)
    bytes = Buffer.concat([bytes.subarray(0, from), put, bytes.subarray(from + cut)])
  }
  return bytes
}

/** One of the good ones with a few edits of its bytes, none at times. */
export const mutatedBytes = (good: fc.Arbitrary<string | Buffer>, most = 4): fc.Arbitrary<Buffer> =>
  fc.tuple(good, fc.array(edit, { maxLength: most })).map(([base, edits]) => edited(Buffer.from(base as string), edits))

/** The same as a text. */
export const mutatedText = (good: fc.Arbitrary<string>, most?: number): fc.Arbitrary<string> => mutatedBytes(good, most).map((bytes) => bytes.toString('utf8'))

/** Where in a JSON value something is replaced: how deep to go, and which member to take there. */
const place = fc.array(fc.nat({ max: 20 }), { minLength: 1, maxLength: 5 })

/** A copy in which the member at a place is another, is gone, or is beside a new one. */
function replaced (value: unknown, [turn = 0, ...rest]: number[], by: unknown, how: 'set' | 'drop' | 'add'): unknown {
  if (value === null || typeof value !== 'object') return by
  const entries = Object.entries(value)
  if (entries.length === 0) return Array.isArray(value) ? [by] : { x: by }
  const [name, member] = entries[turn % entries.length] as [string, unknown]
  const copy: Record<string, unknown> & unknown[] =
    (Array.isArray(value) ? [...value as unknown[]] : Object.assign(Object.create(null), value)) as never
  if (rest.length > 0 && member !== null && typeof member === 'object') copy[name as never] = replaced(member, rest, by, how) as never
  else if (how === 'drop') Array.isArray(copy) ? copy.splice(turn % entries.length, 1) : delete copy[name as never]
  else if (how === 'add') Array.isArray(copy) ? copy.push(by) : copy[typeof by === 'string' ? by : 'extra' as never] = by as never
  else copy[name as never] = by as never
  return copy
}

/** One of the good documents with a few members replaced, left out or added. */
export function mutatedJson (good: fc.Arbitrary<unknown>, by: fc.Arbitrary<unknown> = anyJson()): fc.Arbitrary<unknown> {
  const change = fc.tuple(place, by, fc.constantFrom('set' as const, 'set' as const, 'drop' as const, 'add' as const))
  return fc.tuple(good, fc.array(change, { maxLength: 3 }))
    .map(([base, changes]) => changes.reduce((value, [where, by, how]) => replaced(value, where, by, how), base))
}

/** A document's bytes: a good one changed as JSON or as bytes, any JSON, or anything. */
export const documentBytes = (good: fc.Arbitrary<unknown>, leaf?: fc.Arbitrary<unknown>): fc.Arbitrary<Buffer> => fc.oneof(
  { weight: 6, arbitrary: mutatedJson(good, anyJson(leaf)).map((value) => Buffer.from(JSON.stringify(value) ?? '')) },
  { weight: 2, arbitrary: mutatedBytes(good.map((value) => JSON.stringify(value))) },
  { weight: 1, arbitrary: anyJson(leaf).map((value) => Buffer.from(JSON.stringify(value) ?? '')) },
  { weight: 1, arbitrary: oddJson.map((text) => Buffer.from(text)) },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)) }
)
