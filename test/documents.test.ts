/** What every room relies on: documents read once and in one way, names and keys judged alike, revisions in order. */
import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import fc from 'fast-check'
import { Type } from '@sinclair/typebox'
import { canonical, fitting, lostNumber, parseJson, readDocument } from '../src/core/documents.js'
import { BadDocument } from '../src/core/errors.js'
import { limits } from '../src/core/limits.js'
import { isFingerprint, isName, printable, quoted, sameCommit, short, whyNoKey } from '../src/core/names.js'
import { formatRevision, isOlder, parseRevision, youngest, type Revision } from '../src/core/revision.js'
import { holds } from './support/holds.js'
import { OneOf } from '../src/schemas/common.js'
import { AssignmentSchema, NodeSchema } from '../src/schemas/inventory.js'

const bad = (message: RegExp) => ({ name: 'BadDocument', message })

/** Milliseconds that a task takes; a quadratic one on a document of full size takes minutes. */
const took = (task: () => void): number => {
  const before = performance.now()
  task()
  return performance.now() - before
}

/** A decimal number as a fraction of whole numbers, so that two of them can be compared without a double. */
function fraction (text: string): [bigint, bigint] {
  const [mantissa = '', exponent = '0'] = text.toLowerCase().split('e')
  const [whole = '', decimals = ''] = mantissa.split('.')
  const power = Number(exponent) - decimals.length
  const digits = BigInt(whole.replace('-', '') + decimals) * (text.startsWith('-') ? -1n : 1n)
  return power >= 0 ? [digits * 10n ** BigInt(power), 1n] : [digits, 10n ** BigInt(-power)]
}

function sameNumber (a: string, b: string): boolean {
  if (b === 'null') return false
  const [[p, q], [r, s]] = [fraction(a), fraction(b)]
  return p * s === r * q
}

const digits = (minLength: number, maxLength: number) => fc.string({ unit: fc.constantFrom(...'0123456789'), minLength, maxLength })
const numberText = fc.tuple(
  fc.constantFrom('', '-'),
  fc.oneof(fc.constant('0'), fc.tuple(fc.constantFrom(...'123456789'), digits(0, 24)).map(([first, rest]) => first + rest)),
  fc.option(digits(1, 24), { nil: undefined }),
  fc.option(fc.tuple(fc.constantFrom('e', 'E', 'e+', 'e-'), fc.oneof(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 290, max: 420 }))), { nil: undefined })
).map(([sign, whole, decimals, exponent]) => `${sign}${whole}${decimals === undefined ? '' : `.${decimals}`}${exponent ? exponent.join('') : ''}`)

t.test('a number passes exactly when its double says the same number', async (t) => {
  holds(t, 'compared digit by digit', fc.property(numberText, (text) =>
    (lostNumber(text) === undefined) === sameNumber(text, JSON.stringify(JSON.parse(text)))), { numRuns: 5000 })
  holds(t, 'whatever JSON.stringify writes survives', fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (number) =>
    lostNumber(JSON.stringify(number)) === undefined), { numRuns: 1000 })
  for (const text of ['0', '-0', '0e999999999999', '9007199254740992', '1e21', '1.50', '15e-1', '5e-324', '100000000000000000000']) t.equal(lostNumber(text), undefined, text)
  for (const text of ['9007199254740993', '1e400', '-1e400', '1e-400', '0.1000000000000000000001', '12345678901234567890']) t.equal(lostNumber(text), text, text)
})

t.test('only a number is taken for one, wherever it stands', async (t) => {
  t.equal(lostNumber('{"12345678901234567890": "12345678901234567890 \\" 12345678901234567890"}'), undefined)
  t.equal(lostNumber('{"a\\\\": [1, {"b": 12345678901234567890}]}'), '12345678901234567890')
  t.equal(lostNumber(`[1${'0'.repeat(100)}1]`)?.length, 40, 'cut short for a sentence')
  holds(t, 'a document that was written by JSON.stringify passes', fc.property(fc.json(), (json) => lostNumber(json) === undefined))
})

t.test('JSON that cannot be kept is said to be so in one sentence', async (t) => {
  t.throws(() => parseJson('settings billing', ''), bad(/^settings billing is empty/))
  t.throws(() => parseJson('settings billing', '{'), bad(/^settings billing is no JSON$/))
  t.throws(() => parseJson('settings billing', '{"a": 12345678901234567890}'), bad(/holds the number 12345678901234567890, which no double holds/))
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)
  t.same(parseJson('it', nested(3)), [[[]]])
  t.ok(parseJson('it', nested(limits.documentDepth)))
  t.throws(() => parseJson('it', nested(limits.documentDepth + 1)), bad(/nests deeper than 64 levels/))
  t.throws(() => parseJson('it', nested(limits.documentBytes / 2)), bad(/nests deeper/), 'however deep')
  t.equal(parseJson('it', JSON.stringify('[{'.repeat(100))), '[{'.repeat(100), 'brackets in a string are no nesting')
  t.throws(() => parseJson('it', JSON.stringify('é'.repeat(limits.documentBytes / 2))), bad(/larger than 1048576 bytes/), 'bytes are counted, not characters')
})

t.test('no document of full size takes long, whatever is in it', async (t) => {
  const size = limits.documentBytes - 100
  const texts = {
    'an unterminated string of quotes': '"' + '\\"'.repeat(size / 2),
    'a string of escapes': '"' + '\\n'.repeat(size / 2) + '"',
    'a number of zeros': `1${'0'.repeat(size)}1`,
    'a fraction of zeros': `0.1${'0'.repeat(size)}1`,
    'an endless exponent': `1e-${'9'.repeat(size)}`,
    'brackets that never close': '['.repeat(size)
  }
  for (const [what, text] of Object.entries(texts)) {
    const ms = took(() => { try { parseJson('it', text) } catch (error) { t.ok(error instanceof BadDocument, what) } })
    t.ok(ms < 3000, `${what} takes ${Math.round(ms)} ms`)
  }
})

t.test('equal documents have equal bytes, and a key that looks like a prototype is a key', async (t) => {
  holds(t, 'whatever the member order', fc.property(fc.jsonValue(), (value) => {
    const turned = (x: unknown): unknown => Array.isArray(x)
      ? x.map(turned)
      : typeof x === 'object' && x !== null ? Object.fromEntries(Object.entries(x).reverse().map(([k, v]) => [k, turned(v)])) : x
    return canonical(turned(value)) === canonical(value) && isDeepStrictEqual(JSON.parse(canonical(value)), JSON.parse(JSON.stringify(value)))
  }))
  t.equal(canonical(JSON.parse('{"toString":1,"__proto__":{"constructor":2}}')), '{"__proto__":{"constructor":2},"toString":1}')
})

t.test('a document that does not fit says where and what was expected', async (t) => {
  const entry = (text: string) => ({ key: 'node.a', revision: 1, deleted: false, text })
  t.throws(() => readDocument('inventory', entry('{"nodes": ["A_b"]}'), AssignmentSchema), bad(/^inventory node\.a does not fit at \/nodes\/0: expected string to match/))
  t.throws(() => readDocument('inventory', entry('{"node": "a", "curve": "x"}'), NodeSchema), bad(/\^X\[A-Z2-7\]\{55\}\$/), 'the pattern as it is, in its own letters')
  t.throws(() => fitting('it', AssignmentSchema, []), bad(/^it does not fit: expected object/))
  t.throws(() => fitting('it', Type.Record(Type.String(), Type.String()), { 'a\u0085b': 1 }), bad(/at \/a\\u0085b/), 'a key keeps to its line')
  const one = Type.Object({ outcome: OneOf(['taken-in', 'current']) })
  t.same(fitting('it', one, { outcome: 'current' }), { outcome: 'current' })
  for (const outcome of ['other', null, 5, {}]) t.throws(() => fitting('it', one, { outcome }), bad(/^it does not fit at \/outcome: expected one of taken-in, current$/))
  t.same(readDocument('inventory', entry('{"nodes": ["a"]}'), AssignmentSchema), { nodes: ['a'] })
})

t.test('a key is 1 to 256 code points without control characters and halves of pairs', async (t) => {
  const naive = (text: string): boolean => {
    const points = Array.from(text, (character) => character.codePointAt(0)!)
    return points.length >= 1 && points.length <= 256 &&
      points.every((point) => point > 0x1f && !(point >= 0x7f && point <= 0x9f) && !(point >= 0xd800 && point <= 0xdfff))
  }
  const unit = fc.oneof(
    fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }),
    fc.constantFrom('a', ' ', '.', '/', '\ud800', '\udc00', '\ud83d', '\ude00', '\u0000', '\u007f', '\u009f', '\u00a0', '\u2028')
  )
  holds(t, 'by its characters', fc.property(fc.array(unit, { maxLength: 8 }).map((units) => units.join('')), (text) =>
    (whyNoKey(text) === undefined) === naive(text)), { numRuns: 5000 })
  holds(t, 'by its length', fc.property(fc.constantFrom('a', '😀'), fc.integer({ min: 250, max: 260 }), (unit, count) =>
    (whyNoKey(unit.repeat(count)) === undefined) === (count <= 256)))
  t.match(whyNoKey('a'.repeat(100_000)), /longer than 256 characters/)
  for (const none of [undefined, null, 1, {}, ['a']]) t.equal(whyNoKey(none), 'must be a string')
})

t.test('a name is what a subject token may be, a fingerprint has its one form', async (t) => {
  for (const good of ['a', '0', 'a-b', 'a'.repeat(63)]) t.ok(isName(good), good)
  for (const none of ['', '-a', 'a-', 'A', 'a.b', 'a b', '*', '>', 'a\n', 'a'.repeat(64), 'ä', null, 5]) t.notOk(isName(none), String(none))
  t.ok(isFingerprint(`fp2-${'0a'.repeat(32)}`))
  for (const none of [`fp2-${'0A'.repeat(32)}`, `fp1-${'0a'.repeat(32)}`, `fp2-${'0a'.repeat(31)}`, `fp2-${'0a'.repeat(32)}\n`, undefined]) t.notOk(isFingerprint(none), String(none))
  t.equal(short(`fp2-${'0a'.repeat(32)}`), 'fp2-0a0a0a0a')
})

t.test("somebody else's text keeps to its line in a sentence", async (t) => {
  t.equal(quoted('a"\n\u0085\u2028\ud800'), '"a"\\u000a\\u0085\\u2028\\ud800"')
  t.equal(printable('😀'.repeat(50), 3), '😀\\ud83d…')
  holds(t, 'in one line, and no longer than was asked', fc.property(fc.string({ unit: 'binary', maxLength: 100 }), (text) =>
    !/[\r\n\u0085\u2028\u2029]/.test(printable(text)) && printable(text, 10).length <= 6 * 10 + 1))
})

t.test('commits compare as git has it', async (t) => {
  const commit = fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: 40, maxLength: 40 })
  holds(t, '7 hex digits or more, in either order and case', fc.property(commit, fc.integer({ min: 1, max: 40 }), fc.boolean(), (one, length, upper) => {
    const cut = upper ? one.slice(0, length).toUpperCase() : one.slice(0, length)
    return sameCommit(one, cut) === (length >= 7) && sameCommit(cut, one) === (length >= 7)
  }))
  holds(t, 'two whole ids must be one', fc.property(commit, commit, (one, other) => sameCommit(one, one) && sameCommit(one, other) === (one === other)))
  t.ok(sameCommit('release-7', 'release-7'), 'other systems have other ids')
  t.notOk(sameCommit('release-7', 'release-77'), 'and these have no abbreviation')
  t.notOk(sameCommit('', 'abcdef0'))
})

const revision = fc.record({ epoch: fc.integer({ min: 0, max: 3 }), revision: fc.integer({ min: 0, max: 3 }) })

t.test('older is a strict order: of two different revisions exactly one is older', async (t) => {
  const same = (a: Revision, b: Revision) => formatRevision(a) === formatRevision(b)
  holds(t, 'none is older than itself', fc.property(revision, (a) => !isOlder(a, a)))
  holds(t, 'one of two', fc.property(revision, revision, (a, b) => Number(isOlder(a, b)) + Number(isOlder(b, a)) === (same(a, b) ? 0 : 1)))
  holds(t, 'over three', fc.property(revision, revision, revision, (a, b, c) => !(isOlder(a, b) && isOlder(b, c)) || isOlder(a, c)))
  holds(t, 'the youngest is older than neither', fc.property(revision, revision, (a, b) => {
    const young = youngest(a, b)!
    return !isOlder(young, a) && !isOlder(young, b) && (same(young, a) || same(young, b))
  }))
  t.same(youngest(undefined, { epoch: 1, revision: 1 }), { epoch: 1, revision: 1 })
  t.equal(youngest(undefined, undefined), undefined)
})

t.test('a revision is read as it is written, and nothing else is one', async (t) => {
  holds(t, 'there and back', fc.property(fc.nat(), fc.nat(), (epoch, revision) =>
    isDeepStrictEqual(parseRevision(formatRevision({ epoch, revision })), { epoch, revision })))
  for (const none of [undefined, '', '1', '1.', '.1', '1.1.1', '-1.1', '1.1\n', ' 1.1', '1e3.1', `${'9'.repeat(16)}.1`]) t.equal(parseRevision(none), undefined, String(none))
})
