/** A manifest's JSON Schemas: compiled once, and never trusted with more than a moment of the event loop. */
import { createContext, Script } from 'node:vm'
import { Ajv, type ErrorObject, type Options } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import ajvFormats from 'ajv-formats'
import { LRUCache } from 'lru-cache'
import { canonical } from '../documents.js'
import { messageOf } from '../errors.js'
import { limits } from '../limits.js'
import { printable, quoted } from '../names.js'

export type JsonSchema = boolean | object

/** Why a value does not fit: the path (a JSON pointer into it) and the rule (one into its schema), and both in one sentence. */
export interface Misfit { said: string, path?: string, rule?: string }

/** What is wrong with a value; undefined where it fits. */
export type Check = (value: unknown) => Misfit | undefined

/** A schema that cannot be used; its message is a clause that completes "its schema …". */
export class BadSchema extends Error {
  override readonly name = 'BadSchema'
}

// `ownProperties`, so that a member called `toString` is required of the value itself and not found on its prototype.
const options: Options = { strict: false, logger: false, ownProperties: true }
const dialects = new Map([
  ['https://json-schema.org/draft/2020-12/schema', Ajv2020],
  ['http://json-schema.org/draft-07/schema', Ajv]
])
const newest = 'https://json-schema.org/draft/2020-12/schema'

const room = createContext({ task: undefined })
const runTask = new Script('task()')

/**
 * Runs a task that gives up after `ms`. V8 stops code of this very thread, a regular expression that
 * backtracks and a compile without end among it: that is the one bound that holds whatever a schema says. (What it does
 * not bound: the moment until then, in which nothing else runs here. A schema comes from a build that is trusted to run
 * as a module, so that is an accident, not an attack.) State the task was changing must be thrown away afterwards.
 */
function briefly<T> (task: () => T, ms: number): T {
  for (let tries = 1; ; tries++) {
    const before = process.cpuUsage()
    room.task = task
    try {
      return runTask.runInContext(room, { timeout: ms }) as T
    } catch (error) {
      // The bound is of time on the clock. On a busy machine it can pass while this process hardly ran: that says nothing.
      const { user, system } = process.cpuUsage(before)
      if (!ranOut(error) || tries === limits.schemaTries || user + system > 1000 * ms / 2) throw error
    } finally {
      room.task = undefined
    }
  }
}

const ranOut = (error: unknown): boolean => (error as { code?: unknown }).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'

function newAjv (Dialect: typeof Ajv | typeof Ajv2020, more: Options = {}): Ajv {
  const ajv = new Dialect({ ...options, ...more })
  ajvFormats.default(ajv)
  return ajv
}

/** One instance a dialect that knows what a schema of it looks like; compiling that takes 50 ms, so it is done once. */
const grammars = new Map<string, Ajv>()

function grammarOf (dialect: string): Ajv {
  const known = grammars.get(dialect)
  if (known) return known
  const grammar = newAjv(dialects.get(dialect)!)
  void grammar.validateSchema({})
  grammars.set(dialect, grammar)
  return grammar
}

function dialectOf (schema: JsonSchema): string {
  if (typeof schema === 'boolean' || !Object.hasOwn(schema, '$schema')) return newest
  const { $schema: named } = schema as { $schema: unknown }
  const dialect = typeof named === 'string' ? named.replace(/#$/, '') : ''
  if (!dialects.has(dialect)) throw new BadSchema(`is of a dialect that is not read here: leave $schema out, or name one of ${[...dialects.keys()].join(', ')}`)
  return dialect
}

function compile (schema: JsonSchema): Check {
  const dialect = dialectOf(schema)
  const grammar = grammarOf(dialect)
  const validate = briefly(() => {
    if (grammar.validateSchema(schema) !== true) throw new BadSchema(`is no valid JSON Schema: ${grammar.errorsText(grammar.errors?.slice(0, 1), { dataVar: 'it' })}`)
    // An instance of its own: an $id never meets another schema's, and one that ran out of time leaves nothing behind.
    return newAjv(dialects.get(dialect)!, { validateSchema: false }).compile(schema)
  }, limits.schemaCompileMs)
  if (Object.hasOwn(validate, '$async')) throw new BadSchema('says $async, which is not read here: leave it out')
  return (value) => {
    try {
      if (briefly(() => validate(value), limits.schemaMs)) return undefined
    } catch (error) {
      // A schema may refer to itself without end, or hold a pattern too large to run.
      const why = ranOut(error) ? `took longer than ${limits.schemaMs} ms: look for a pattern that backtracks` : 'does not come to an end'
      return { said: `the check of the value against its schema ${why}` }
    }
    return misfit(validate.errors?.[0])
  }
}

function misfit (error: ErrorObject | undefined): Misfit {
  if (!error) return { said: 'the value does not fit its schema' }
  const where = error.instancePath === '' ? 'the value' : `the value at ${printable(error.instancePath, 200)}`
  const { allowedValues, additionalProperty } = error.params as { allowedValues?: unknown, additionalProperty?: string }
  let more = ''
  if (allowedValues !== undefined) more = `: ${printable(canonical(allowedValues), 200)}`
  if (additionalProperty !== undefined) more = `: ${quoted(additionalProperty)}`
  const rule = printable(error.schemaPath, 200)
  return { said: `${where} ${printable(error.message ?? 'does not fit', 200)}${more} (rule ${rule})`, path: printable(error.instancePath, 200), rule }
}

const compiled = new LRUCache<string, { check: Check } | { bad: BadSchema }>({ max: limits.schemasCompiled })

/** The check that a JSON Schema (2020-12, or draft-07 where it says so) stands for; throws BadSchema. Nothing is ever fetched for it. */
export function checkOf (schema: JsonSchema): Check {
  const text = canonical(schema)
  if (text.length > limits.schemaCharacters) throw new BadSchema(`is longer than ${limits.schemaCharacters} characters`)
  let known = compiled.get(text)
  if (!known) {
    try {
      known = { check: compile(schema) }
    } catch (error) {
      // Not remembered: another time the machine may be less busy.
      if (ranOut(error)) throw new BadSchema(`took longer than ${limits.schemaCompileMs} ms to compile: make it smaller`)
      known = { bad: error instanceof BadSchema ? error : new BadSchema(`does not compile: ${printable(messageOf(error), 200)}`) }
    }
    compiled.set(text, known)
  }
  if ('bad' in known) throw known.bad
  return known.check
}
