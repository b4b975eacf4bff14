/** Inventory in, compositions out: what a manifest may say, what a node is to run, who may do what on the bus. */
import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import fc from 'fast-check'
import { busUsers, composeModule, Unresolvable, type ComposeInput } from '../src/core/compose/compose.js'
import { closedRing } from '../src/core/compose/cycle.js'
import { diffComposition } from '../src/core/compose/diff.js'
import { checkManifest, checkSetting } from '../src/core/compose/manifest.js'
import { userRights, whyNoSubject } from '../src/core/compose/permissions.js'
import { canonical, fitting, parseJson } from '../src/core/documents.js'
import { limits } from '../src/core/limits.js'
import { CompositionSchema, type Composition, type Credential } from '../src/schemas/composition.js'
import { CompositionDiffSchema } from '../src/schemas/diff.js'
import { ManifestSchema, type Manifest } from '../src/schemas/manifest.js'
import { BindingSchema, type NodeDocument, type Registered } from '../src/schemas/inventory.js'
import { holds } from './support/holds.js'

const curve = (letter: string): string => 'X' + letter.repeat(55)
const userKey = (letter: string): string => 'U' + letter.repeat(55)
const credential = (to: string, letter = 'A'): Credential => ({ user: userKey(letter), sealed: `sealed-${letter}`, by: curve('B'), to })
const fp = (digit: string): string => `fp2-${digit.repeat(64)}`
const nodeA: NodeDocument = { node: 'node-a', curve: curve('A') }

/** A manifest as it comes from a bucket: JSON text, so that every key is a plain one. */
const manifestOf = (text: string): Manifest => fitting('manifest', ManifestSchema, parseJson('manifest', text))
const billing = (rest: object = {}): Manifest => manifestOf(JSON.stringify({ module: 'billing', ...rest }))
const registeredAt = (manifest: Manifest): Registered => ({ module: manifest.module, fp: fp('1'), commit: 'abcdef0', trunk: '1.1', manifest })
const compose = (manifest: Manifest, rest: Partial<ComposeInput> = {}): Composition => composeModule({
  node: nodeA,
  registered: registeredAt(manifest),
  settings: {},
  binding: {},
  offersOf: () => undefined,
  makeCredential: (to) => credential(to),
  ...rest
})
const refused = (message: RegExp) => ({ name: 'BadDocument', message })
const unresolvable = (message: RegExp) => ({ name: 'Unresolvable', message })

/** Subject matching as NATS has it, told plainly. */
function matches (pattern: string, subject: string): boolean {
  const [wanted, given] = [pattern.split('.'), subject.split('.')]
  for (const [at, token] of wanted.entries()) {
    if (token === '>') return given.length > at
    if (at >= given.length || (token !== '*' && token !== given[at])) return false
  }
  return wanted.length === given.length
}

/** What the server calls a subject: tokens between dots, none empty or with white space, `>` last. */
function isSubject (text: string): boolean {
  const tokens = text.split('.')
  return tokens.every((token, at) => token !== '' && !token.includes(' ') && (token !== '>' || at === tokens.length - 1))
}

const isReserved = (subject: string): boolean => subject.startsWith('$') || subject.startsWith('mesh.') || subject.startsWith('_INBOX') || /^_G?R_/.test(subject)
const piece = fc.constantFrom('$', '_INBOX', '_R_', 'mesh', 'a', '*', '>', '.', '.', ' ')
const anySubject = fc.array(piece, { minLength: 1, maxLength: 7 }).map((pieces) => pieces.join(''))
const token = fc.constantFrom('$', '$SYS', '_INBOX', '_INBOXa', '_R_', '_GR_', 'mesh', 'a', 'mesha', '*', '>')
const wellFormed = fc.array(token, { minLength: 1, maxLength: 4 }).map((tokens) => tokens.join('.'))

t.test('no subject that is taken in ever matches one of the server, the mesh or an inbox', async (t) => {
  const concrete = fc.array(fc.constantFrom('$', '$SYS', '$JS', '_INBOX', '_INBOXa', '_R_', '_GR_', 'mesh', 'a'), { minLength: 1, maxLength: 5 }).map((tokens) => tokens.join('.'))
  holds(t, 'whatever is asked of it', fc.property(fc.oneof(anySubject, wellFormed), concrete, (pattern, subject) =>
    whyNoSubject(pattern) !== undefined || !matches(pattern, subject) || !isReserved(subject)), { numRuns: 20_000 })
  // Every subject that a pattern matches is the pattern with its wildcards filled in: these are tried one by one.
  const fillings = ['$SYS', '_INBOX', '_R_', 'mesh', 'a']
  const filled = (pattern: string): string[] => pattern.split('.').reduce<string[]>((subjects, token) => {
    const tokens = token === '*' ? fillings : token === '>' ? [...fillings, 'a.b', 'mesh.a'] : [token]
    return subjects.flatMap((subject) => tokens.map((next) => subject === '' ? next : `${subject}.${next}`))
  }, [''])
  holds(t, 'and one is refused for no other cause', fc.property(fc.oneof(anySubject, wellFormed), (pattern) =>
    (whyNoSubject(pattern) === undefined) === (isSubject(pattern) && !filled(pattern).some(isReserved))), { numRuns: 20_000 })
})

t.test('a subject is refused with the reason', async (t) => {
  for (const good of ['orders', 'orders.*.paid', 'orders.>', 'a.*', 'mesh', 'meshes.a', 'a.mesh.b', 'a.$JS', 'a>b.c*', 'INBOX.a', 'ordérs.x', '😀.>', 'a*']) t.equal(whyNoSubject(good), undefined, good)
  const table: Array<[string, RegExp]> = [
    ['', /is empty/], ['.', /empty token/], ['a.', /empty token/], ['.a', /empty token/], ['a..b', /empty token/],
    ['a b', /white space/], ['a.\tb', /white space/], ['a\r\nPUB x', /white space/], ['a\f', /white space/],
    ['a\u0000', /control/], ['a\u007f', /control/], ['a\u0085', /control/], ['a.\ud800', /surrogate/], ['a.>.b', /last token/], ['>.a', /last token/],
    ['>', /would match/], ['*', /would match/], ['*.x', /would match/], ['*.*', /would match/],
    ['$SYS.>', /begins with \$/], ['$', /begins with \$/], ['_INBOX.>', /begins with _INBOX/], ['_INBOXES', /begins with _INBOX/], ['_R_.>', /begins with _R_/], ['_GR_.a.*', /begins with _GR_/],
    ['mesh.>', /begins with mesh\./], ['mesh.*', /begins with mesh\./], ['mesh.provision.a.b.get', /begins with mesh\./],
    ['a'.repeat(limits.subjectCharacters + 1), /longer than 512/]
  ]
  for (const [subject, reason] of table) t.match(whyNoSubject(subject), reason, JSON.stringify(subject))
})

t.test('a user has its own values and its own inbox, and no other', async (t) => {
  const rights = userRights({ module: 'billing', node: 'node-a', user: userKey('A'), publish: ['orders.paid'], subscribe: [] })
  t.same(rights, {
    publish: ['orders.paid', 'mesh.provision.node-a.billing.get', 'mesh.provision.node-a.billing.list'],
    subscribe: [`_INBOX.${userKey('A')}.>`, 'mesh.provision.node-a.billing.changed']
  })
  const may = (list: string[], subject: string) => list.some((pattern) => matches(pattern, subject))
  t.ok(may(rights.subscribe, `_INBOX.${userKey('A')}.1`))
  for (const other of [`_INBOX.${userKey('B')}.1`, '_INBOX.x', 'mesh.provision.node-b.billing.changed', 'mesh.provision.node-a.shop.changed']) t.notOk(may(rights.subscribe, other), other)
  for (const other of ['mesh.provision.node-a.shop.get', 'mesh.provision.node-a.billing.changed', 'mesh.broker.s.applied', '$JS.API.INFO']) t.notOk(may(rights.publish, other), other)
})

t.test('a manifest that cannot be taken in says which key or subject is at fault', async (t) => {
  t.doesNotThrow(() => checkManifest('billing', billing({
    config: { a: { default: 1, schema: { type: 'integer' } }, b: { schema: true }, c: {}, d: { default: null } },
    bound: { db: {} },
    secrets: ['token'],
    offers: { url: 'x', none: null },
    permissions: { publish: ['a.>'], subscribe: ['a.>'] }
  })))
  const table: Array<[object, RegExp]> = [
    [{ module: 'shop' }, /the manifest of billing names another module, "shop"/],
    [{ config: { '': {} } }, /the key "" in config is empty/],
    [{ bound: { 'a\nb': {} } }, /the key "a\\u000ab" in bound holds a control character/],
    [{ offers: { ['a'.repeat(257)]: 1 } }, /in offers is longer than 256/],
    [{ secrets: ['\ud800'] }, /the key "\\ud800" in secrets holds half a surrogate pair/],
    [{ config: { 'a\u2028': null } }, /"a\\u2028" in config must be an object/],
    [{ bound: { 'a\u2028': 5 } }, /"a\\u2028" in bound must be an object/],
    [{ config: { port: { default: 'x', schema: { type: 'integer' } } } }, /the default of config "port" is refused by its own schema: the value must be integer/],
    [{ config: { port: { default: null, schema: false } } }, /the default of config "port" is refused/],
    [{ permissions: { publish: ['a', 'mesh.a'] } }, /may not publish as it asks: the subject "mesh\.a" begins with mesh\./],
    [{ permissions: { subscribe: ['*.x'] } }, /may not subscribe as it asks: the subject "\*\.x" would match/],
    [{ permissions: { subscribe: ['a', 'b', 'a'] } }, /names the subject "a" twice in permissions\.subscribe/]
  ]
  for (const [part, message] of table) t.throws(() => checkManifest('billing', billing(part)), refused(message))
  t.throws(() => checkManifest('billing', { module: 'billing', secrets: ['a', 'a'] }), refused(/names the secret "a" twice/))
})

t.test('a schema that cannot be used is refused, with nothing fetched and nothing left hanging', async (t) => {
  const withSchema = (schema: unknown) => () => checkManifest('billing', billing({ config: { key: { schema } } }))
  const table: Array<[unknown, RegExp]> = [
    [{ type: 'text' }, /the schema of config "key" is no valid JSON Schema: it\/type must be/],
    [{ pattern: '(' }, /is no valid JSON Schema|does not compile/],
    [{ $ref: 'https://example.com/schema.json' }, /does not compile: can't resolve reference/],
    [{ $ref: '#/$defs/none' }, /does not compile: can't resolve reference/],
    [{ $async: true }, /says \$async/],
    [{ $schema: 'http://json-schema.org/draft-04/schema#' }, /dialect that is not read here/],
    [{ $schema: 5 }, /dialect that is not read here/],
    [{ $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' }, /does not compile/],
    [{ description: 'a'.repeat(limits.schemaCharacters) }, /is longer than 32768 characters/]
  ]
  for (const [schema, message] of table) t.throws(withSchema(schema), refused(message))
  t.throws(withSchema(table[0]![0]), refused(table[0]![1]), 'the same again')
  t.doesNotThrow(withSchema({ $schema: 'https://json-schema.org/draft/2020-12/schema', prefixItems: [{ type: 'string' }] }))
  t.doesNotThrow(withSchema({ $schema: 'http://json-schema.org/draft-07/schema#', items: [{ type: 'string' }] }))
  t.doesNotThrow(withSchema({ $ref: 'https://json-schema.org/draft/2020-12/schema' }), 'what is known here needs no fetch')
  t.doesNotThrow(withSchema({ $id: 'https://example.com/a', type: 'string' }))
  t.doesNotThrow(withSchema({ $id: 'https://example.com/a', type: 'number' }), 'an $id belongs to its schema alone')
  t.doesNotThrow(withSchema({ 'x-unit': 'ms', format: 'of-our-own' }), 'unknown keywords and formats say nothing')
})

t.test('a setting is checked against the schema, with the path and the rule in the answer', async (t) => {
  const manifest = billing({
    config: {
      retry: { schema: { type: 'object', properties: { max: { type: 'integer', minimum: 1 }, mode: { enum: ['fast', 'safe'] } }, additionalProperties: false } },
      at: { schema: { type: 'string', format: 'date-time' } },
      pair: { schema: { $schema: 'http://json-schema.org/draft-07/schema#', items: [{ type: 'string' }] } },
      named: { schema: { required: ['toString'] } },
      any: {}
    }
  })
  t.equal(checkSetting(manifest, 'retry', { max: 3, mode: 'safe' }), undefined)
  t.equal(checkSetting(manifest, 'retry', { max: 0 }), 'the value at /max must be >= 1 (rule #/properties/max/minimum)')
  t.equal(checkSetting(manifest, 'retry', { mode: 'slow' }), 'the value at /mode must be equal to one of the allowed values: ["fast","safe"] (rule #/properties/mode/enum)')
  t.match(checkSetting(manifest, 'retry', { 'a\nb': 1 }), /must NOT have additional properties: "a\\u000ab"/)
  t.equal(checkSetting(manifest, 'retry', 5), 'the value must be object (rule #/type)')
  t.equal(checkSetting(manifest, 'at', '2024-02-29T00:00:00Z'), undefined)
  t.match(checkSetting(manifest, 'at', 'hunter2'), /must match format "date-time"/)
  t.notMatch(checkSetting(manifest, 'at', 'hunter2'), /hunter2/, 'the value is not said back')
  t.match(checkSetting(manifest, 'pair', [1]), /the value at \/0 must be string/)
  t.match(checkSetting(manifest, 'named', {}), /must have required property/, 'a member is never found on a prototype')
  for (const value of [null, false, 0, '', [], {}]) t.equal(checkSetting(manifest, 'any', value), undefined)
  for (const key of ['none', 'toString', '__proto__']) t.match(checkSetting(manifest, key, 1), new RegExp(`the manifest of billing declares no config key "${key}"`))
})

t.test('a manifest that was never checked is answered, too, with what is wrong in it', async (t) => {
  const manifest = billing({ config: { key: { schema: { pattern: '(' } } } })
  t.match(checkSetting(manifest, 'key', 'x'), /^the schema of config "key" in the manifest of billing (is no valid JSON Schema|does not compile)/)
  t.throws(() => compose(manifest, { settings: { key: 'x' } }), unresolvable(/the setting of config "key" of billing does not fit: the schema of config "key"/))
  t.throws(() => compose(manifestOf('{"module":"billing","config":{"\u2028":null}}')), unresolvable(/has neither a default nor a setting/))
  const binding = fitting('binding', BindingSchema, JSON.parse('{"\\u2028":5}'))
  t.throws(() => compose(billing({ bound: { '\u2028': {} } }), { binding }), unresolvable(/"\\u2028" of billing is bound to nothing/))
})

t.test('a check that would take for ever is given up, and the next one works', async (t) => {
  const manifest = billing({ config: { slow: { schema: { pattern: '^(a+)+$' } }, endless: { schema: { properties: { a: {} }, $dynamicRef: '#' } } } })
  checkManifest('billing', manifest)
  const before = performance.now()
  t.match(checkSetting(manifest, 'slow', 'a'.repeat(60) + '!'), /took longer than 500 ms: look for a pattern that backtracks/)
  t.ok(performance.now() - before < 10 * limits.schemaMs)
  t.equal(checkSetting(manifest, 'slow', 'aaa'), undefined)
  t.match(checkSetting(manifest, 'endless', {}), /does not come to an end/)
})

t.test('config is the setting, else the default, else there is no composition', async (t) => {
  const manifest = billing({ config: { a: { default: 1 }, b: { default: { deep: [1, null] } }, c: { schema: { type: 'string' } }, d: { default: null } } })
  t.same(compose(manifest, { settings: { a: null, c: 'set', undeclared: 5 } }).config, { a: null, b: { deep: [1, null] }, c: 'set', d: null })
  t.throws(() => compose(manifest), unresolvable(/^billing cannot be composed on node-a: config "c" of billing has neither a default nor a setting$/))
  t.throws(() => compose(manifest, { settings: { c: 5 } }), unresolvable(/the setting of config "c" of billing does not fit: the value must be string/))
})

t.test('bound is what the other module offers, and every one that is not there is named', async (t) => {
  const manifest = billing({ bound: { db: {}, bus: {} }, offers: { self: 'mine' } })
  const offersOf = (module: string) => module === 'postgres' ? { url: 'pg://', empty: null } : undefined
  t.same(compose(manifest, { offersOf, binding: { db: { module: 'postgres', offer: 'url' }, bus: { module: 'postgres', offer: 'empty' } } }).bound, { bus: null, db: 'pg://' })
  t.same(compose(manifest, { offersOf, binding: { db: { module: 'billing', offer: 'self' }, bus: { module: 'postgres', offer: 'url' } } }).bound.db, 'mine', 'its own offer, of the manifest that is composed')
  t.throws(() => compose(manifest, { offersOf, binding: { db: { module: 'mysql', offer: 'url' } } }),
    unresolvable(/bound "bus" of billing is bound to nothing: name a module and its offer in binding\.billing; bound "db" of billing is bound to "url" of mysql, but no module mysql is registered/))
  t.throws(() => compose(billing({ bound: { db: {} } }), { offersOf, binding: { db: { module: 'postgres', offer: 'toString' } } }), unresolvable(/postgres offers no such thing/))
  t.throws(() => compose(billing({ bound: { toString: {} } })), unresolvable(/bound "toString" of billing is bound to nothing/))
})

t.test('a module with very many faults still makes a sentence that can be read', async (t) => {
  const manifest = billing({ config: Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`key-${at}`, {}])) })
  try {
    compose(manifest)
    t.fail('composed')
  } catch (error) {
    if (!(error instanceof Unresolvable)) throw error
    t.match(error.message, /; and 980 more$/)
    t.equal(error.reasons.length, limits.unresolvableReasons)
  }
})

t.test('a credential is made once, and again only for a new key of the node', async (t) => {
  let made = 0
  const makeCredential = (to: string) => credential(to, 'ABC'.charAt(made++))
  const first = compose(billing(), { makeCredential })
  t.equal(first.credential.to, nodeA.curve)
  t.same(compose(billing(), { makeCredential, standing: first }).credential, first.credential)
  t.equal(made, 1)
  t.equal(compose(billing(), { makeCredential, standing: first, node: { node: 'node-a', curve: curve('C') } }).credential.to, curve('C'))
  t.equal(made, 2)
  t.throws(() => compose(billing({ config: { a: {} } }), { makeCredential }), unresolvable(/config "a"/))
  t.equal(made, 2, 'none for a composition that is not')
})

t.test('keys that are called like members of a prototype are keys like others', async (t) => {
  const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty']
  const map = (value: (name: string) => unknown) => `{${names.map((name) => `"${name}":${JSON.stringify(value(name))}`).join()}}`
  const manifest = manifestOf(`{"module":"billing","config":${map(() => ({ default: 1 }))},"bound":${map(() => ({}))},"offers":${map((name) => name)}}`)
  checkManifest('billing', manifest)
  const binding = JSON.parse(map((name) => ({ module: 'billing', offer: name })))
  const defaults = compose(manifest, { binding })
  t.equal(canonical(defaults.config), '{"__proto__":1,"constructor":1,"hasOwnProperty":1,"toString":1}')
  t.equal(canonical(defaults.bound), '{"__proto__":"__proto__","constructor":"constructor","hasOwnProperty":"hasOwnProperty","toString":"toString"}')
  t.equal(Object.getPrototypeOf(defaults.config), Object.prototype, 'and nothing of them reaches a prototype')
  const set = compose(manifest, { binding, settings: JSON.parse('{"__proto__":{"polluted":true}}') })
  t.match(canonical(set.config), /^\{"__proto__":\{"polluted":true\},/)
  t.equal(({} as { polluted?: boolean }).polluted, undefined)
  t.same(diffComposition(defaults, set).changes, [{ path: '/config/__proto__', change: 'changed', was: 1, is: { polluted: true } }])
})

const key = fc.oneof(fc.constantFrom('a', 'b', 'c', '10', '9', '__proto__', 'toString', 'é'), fc.string({ unit: 'grapheme', minLength: 1, maxLength: 3 }))
const mapOf = <V>(value: fc.Arbitrary<V>) => fc.dictionary(key, value, { maxKeys: 6 })
const inventory = fc.record({
  config: mapOf(fc.oneof(fc.record({ default: fc.jsonValue() }), fc.constant({}))),
  bound: mapOf(fc.constant({})),
  secrets: fc.uniqueArray(key, { maxLength: 4 }),
  offers: mapOf(fc.jsonValue()),
  others: mapOf(fc.jsonValue()),
  settings: mapOf(fc.jsonValue()),
  binding: mapOf(fc.record({ module: fc.constantFrom('billing', 'other', 'none'), offer: key }))
})
type Inventory = typeof inventory extends fc.Arbitrary<infer T> ? T : never

/** The composition as bytes, or the reasons why there is none. */
function outcome ({ config, bound, secrets, offers, others, settings, binding }: Inventory, rest: Partial<ComposeInput> = {}): string {
  try {
    const manifest = { module: 'billing', config, bound, secrets, offers }
    return canonical(compose(manifest, { settings, binding, offersOf: (name) => name === 'other' ? others : undefined, ...rest }))
  } catch (error) {
    if (!(error instanceof Unresolvable)) throw error
    return error.message
  }
}

/** The same value with the members of every object the other way round. */
const turned = <T>(value: T): T => {
  if (Array.isArray(value)) return value.map((item: unknown) => turned(item)) as T
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).reverse().map(([name, member]) => [name, turned(member)])) as T
}

t.test('the same inventory gives the same bytes, whatever the member order', async (t) => {
  holds(t, 'or the same reasons', fc.property(inventory, (one) => outcome({ ...turned(one), secrets: one.secrets }) === outcome(one)), { numRuns: 500 })
  holds(t, 'and the order of secrets', fc.property(inventory, (one) => outcome({ ...one, secrets: [...one.secrets].reverse() }) === outcome(one)))
  holds(t, 'composing again changes nothing, whatever a new credential would be', fc.property(inventory, (one) => {
    const text = outcome(one)
    return !text.startsWith('{') || outcome(one, { standing: JSON.parse(text), makeCredential: (to) => credential(to, 'Z') }) === text
  }))
})

t.test('a composition depends on nothing that is not its own', async (t) => {
  holds(t, "settings and bindings of other keys, other modules' offers", fc.property(inventory, mapOf(fc.jsonValue()), (one, noise) => {
    const of = <T extends object>(map: T, keys: object): T =>
      Object.fromEntries(Object.entries(map).filter(([name]) => Object.hasOwn(keys, name))) as T
    const more = <T extends object>(map: T, keys: object, extra: unknown): T => Object.fromEntries([
      ...Object.keys(noise).filter((name) => !Object.hasOwn(keys, name)).map((name) => [name, extra]), ...Object.entries(map)
    ]) as T
    const bare = outcome({ ...one, settings: of(one.settings, one.config), binding: of(one.binding, one.bound) })
    const noisy = outcome({ ...one, settings: more(one.settings, one.config, 1), binding: more(one.binding, one.bound, { module: 'loud', offer: 'noise' }) }, {
      offersOf: (name) => name === 'other' ? one.others : name === 'loud' ? noise : undefined
    })
    return bare === outcome(one) && noisy === bare
  }), { numRuns: 500 })
  holds(t, 'two nodes differ in their name and credential alone', fc.property(inventory, (one) => {
    const text = outcome(one)
    if (!text.startsWith('{')) return true
    const other = JSON.parse(outcome(one, { node: { node: 'node-b', curve: curve('D') } })) as Composition
    const told = canonical({ ...other, node: 'node-a', credential: credential(nodeA.curve) })
    return told === text && other.node === 'node-b' && other.credential.to === curve('D')
  }))
  holds(t, 'and what it is made of is left as it was', fc.property(inventory, (one) => {
    const before = canonical(one)
    outcome(one)
    return canonical(one) === before
  }))
})

/** Bindings of a few modules among each other, each with the revision it was written at. */
const bindings = fc.array(fc.record({ from: fc.nat(5), to: fc.nat(5) }), { maxLength: 12 }).map((written) => {
  const bound = new Map<string, { revision: number, to: string[] }>()
  for (const [i, { from, to }] of written.entries()) bound.set(`m${from}`, { revision: i + 1, to: [...bound.get(`m${from}`)?.to ?? [], `m${to}`] })
  return bound
})

t.test('of each ring of bindings the module that was bound last is at fault, with the ring as a chain, and no other', async (t) => {
  holds(t, 'a module is at fault where it reaches itself by bindings no younger than its own', fc.property(bindings, (bound) => {
    const of = (module: string) => bound.get(module) ?? { revision: 0, to: [] }
    for (let n = 0; n < 6; n++) {
      const module = `m${n}`
      const { revision } = of(module)
      const reached = new Set<string>()
      const walk = (at: string): void => {
        for (const to of of(at).to) {
          if (reached.has(to) || (to !== module && of(to).revision > revision)) continue
          reached.add(to)
          if (to !== module) walk(to)
        }
      }
      walk(module)
      const chain = closedRing(module, of)
      if (reached.has(module) !== (chain !== undefined)) return false
      if (!chain) continue
      if (chain[0] !== module || chain.at(-1) !== module || chain.length < 2) return false
      if (chain.slice(1).some((to, i) => !of(chain[i] as string).to.includes(to) || of(to).revision > revision)) return false
      if (new Set(chain).size !== chain.length - 1) return false
    }
    return true
  }))
  holds(t, 'where nothing goes round nobody is at fault, and where something does somebody is', fc.property(bindings, (bound) => {
    const of = (module: string) => bound.get(module) ?? { revision: 0, to: [] }
    const goesRound = [...bound.keys()].some((module) => {
      const reached = new Set<string>()
      const edge = [...of(module).to]
      for (let at = edge.pop(); at !== undefined; at = edge.pop()) if (!reached.has(at)) { reached.add(at); edge.push(...of(at).to) }
      return reached.has(module)
    })
    return goesRound === [...bound.keys()].some((module) => closedRing(module, of) !== undefined)
  }))
  const manifest = billing({ bound: { url: {} } })
  const input = { offersOf: () => ({ url: 'x' }), binding: { url: { module: 'shop', offer: 'url' } } }
  const ring = { ...input, cycle: ['billing', 'shop', 'billing'] }
  t.throws(() => compose(manifest, ring), unresolvable(/its bindings go round, billing → shop → billing, since binding\.billing was written last: bind one of these to another module/))
  t.same(compose(manifest, input).bound, { url: 'x' })
})

t.test('a missing offer is an error for the one that is bound to it, and two modules may offer one name', async (t) => {
  const offers: Record<string, Record<string, unknown>> = { one: { url: 'of one' }, two: { url: 'of two' } }
  const offersOf = (module: string) => offers[module]
  const manifest = billing({ bound: { a: {}, b: {} } })
  const binding = { a: { module: 'one', offer: 'url' }, b: { module: 'two', offer: 'url' } }
  t.same(compose(manifest, { offersOf, binding }).bound, { a: 'of one', b: 'of two' })
  delete offers.two?.url
  t.throws(() => compose(manifest, { offersOf, binding }), unresolvable(/bound "b" .* but two offers no such thing$/))
  t.same(compose(billing({ bound: { a: {} } }), { offersOf, binding }).bound, { a: 'of one' }, 'who is not bound to it is composed as before')
})

t.test('a composition has exactly the declared keys, each with its one value', async (t) => {
  holds(t, 'as a plain reading of the rules has it', fc.property(inventory, (one) => {
    const wanted = Object.entries(one.config).map(([name, entry]): [string, unknown] | undefined =>
      Object.hasOwn(one.settings, name) ? [name, one.settings[name]] : 'default' in entry ? [name, entry.default] : undefined)
    const found = Object.keys(one.bound).map((name): [string, unknown] | undefined => {
      const to = Object.entries(one.binding).find(([key]) => key === name)?.[1]
      const offers = to && Object.entries(to.module === 'billing' ? one.offers : to.module === 'other' ? one.others : {})
      const offer = offers?.find(([key]) => key === to?.offer)
      return offer && [name, offer[1]]
    })
    const text = outcome(one)
    if (wanted.includes(undefined) || found.includes(undefined)) return text.startsWith('billing cannot be composed')
    const composition = fitting('composition', CompositionSchema, JSON.parse(text))
    const entries = (pairs: Array<[string, unknown] | undefined>) => canonical(Object.fromEntries(pairs as Array<[string, unknown]>))
    return canonical(composition.config) === entries(wanted) && canonical(composition.bound) === entries(found) &&
      isDeepStrictEqual(composition.secrets, [...one.secrets].sort())
  }), { numRuns: 1000 })
})

t.test('the user list is sorted, without doubles and without modules that have no user', async (t) => {
  const held = (node: string, letter: string) => ({ node, credential: credential(nodeA.curve, letter) })
  const rows = busUsers([
    { module: 'shop', manifest: { module: 'shop', permissions: { publish: ['b', 'a', 'b'] } }, compositions: [held('node-b', 'B'), held('node-a', 'A')] },
    { module: 'idle', manifest: { module: 'idle' }, compositions: [] },
    { module: 'billing', manifest: { module: 'billing' }, compositions: [held('node-a', 'C')] }
  ])
  t.same(rows, [
    { module: 'billing', publish: [], subscribe: [], users: [{ node: 'node-a', user: userKey('C') }] },
    { module: 'shop', publish: ['a', 'b'], subscribe: [], users: [{ node: 'node-a', user: userKey('A') }, { node: 'node-b', user: userKey('B') }] }
  ])
  t.notMatch(canonical(rows), /sealed/)
})

t.test('a module whose registration is broken keeps the users that still have a composition', async (t) => {
  const kept = {
    module: 'shop',
    publish: ['a'],
    subscribe: ['b'],
    users: [{ node: 'node-c', user: userKey('C') }, { node: 'node-b', user: userKey('B') }, { node: 'node-a', user: userKey('A') }]
  }
  const compositions = [['node-c', 'C'], ['node-a', 'A'], ['node-b', 'Z']].map(([node = '', letter]) => ({ node, credential: credential(nodeA.curve, letter) }))
  t.same(busUsers([{ module: 'shop', kept, compositions }]), [{ ...kept, users: [{ node: 'node-a', user: userKey('A') }, { node: 'node-c', user: userKey('C') }] }])
  t.same(busUsers([{ module: 'shop', kept, compositions: [] }]), [])
  t.equal(kept.users.length, 3, 'the row that stood is left as it was')
})

t.test('a difference names what was added, removed and changed, and never a credential', async (t) => {
  const was = compose(billing({ config: { a: { default: 1 }, 'b/~': { default: 2 }, same: { default: {} } }, secrets: ['s'] }))
  const is: Composition = {
    ...was,
    fp: fp('2'),
    config: { a: { x: 1 }, new: null, same: {} },
    bound: { db: 'pg' },
    secrets: [],
    credential: credential(curve('E'), 'E')
  }
  const diff = diffComposition(was, is)
  t.same(diff, {
    credential: 'new',
    changes: [
      { path: '/fp', change: 'changed', was: fp('1'), is: fp('2') },
      { path: '/config/a', change: 'changed', was: 1, is: { x: 1 } },
      { path: '/config/b~1~0', change: 'removed', was: 2 },
      { path: '/config/new', change: 'added', is: null },
      { path: '/bound/db', change: 'added', is: 'pg' },
      { path: '/secrets', change: 'removed', was: ['s'] }
    ]
  })
  t.same(fitting('diff', CompositionDiffSchema, JSON.parse(canonical(diff))), diff)
  t.notMatch(canonical(diff), /sealed|U[A-Z2-7]{55}|X[A-Z2-7]{55}/)
  t.same(diffComposition(was, was), { credential: 'kept', changes: [] })
  t.same(diffComposition(undefined, undefined), { credential: 'none', changes: [] })
  t.equal(diffComposition(was, undefined).credential, 'removed')
  t.ok(diffComposition(undefined, is).changes.every(({ change }) => change === 'added'))
})

t.test('a difference of the user list tells modules, rights and nodes, and reads the same whatever the keys are', async (t) => {
  const row = (module: string, publish: string[], users: Array<[string, string]>) =>
    ({ module, publish, subscribe: [], users: users.map(([node, letter]) => ({ node, user: userKey(letter) })) })
  const broker = compose(billing())
  const was = { ...broker, users: [row('gone', [], [['node-a', 'A']]), row('shop', ['a'], [['node-a', 'A'], ['node-b', 'B']])] }
  const next = (letter: string) => ({ ...broker, users: [row('new', ['x'], [['node-a', letter]]), row('shop', ['a', 'b'], [['node-a', letter], ['node-b', 'B']])] })
  const diff = diffComposition(was, next('C'))
  t.same(diff.changes, [
    { path: '/users/gone/publish', change: 'removed', was: [] },
    { path: '/users/gone/subscribe', change: 'removed', was: [] },
    { path: '/users/gone/users/node-a', change: 'removed' },
    { path: '/users/new/publish', change: 'added', is: ['x'] },
    { path: '/users/new/subscribe', change: 'added', is: [] },
    { path: '/users/new/users/node-a', change: 'added' },
    { path: '/users/shop/publish', change: 'changed', was: ['a'], is: ['a', 'b'] },
    { path: '/users/shop/users/node-a', change: 'changed' }
  ])
  t.same(diffComposition(was, next('D')), diff)
  t.equal(diff.credential, 'kept')
})
