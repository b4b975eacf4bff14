/** What is wrong with a request that does not fit its route's schema, as a sentence. What was sent is not said back. */
import type { FastifyError, FastifyRequest } from 'fastify'

/** What is read of a schema here. */
interface Expected {
  type?: string
  enum?: string[]
  pattern?: string
  maxLength?: number
  properties?: Record<string, Expected>
  items?: Expected
}

const parts: Record<string, string> = { body: 'the body', querystring: 'the query', params: 'the path', headers: 'the headers' }
const types: Record<string, string> = { integer: 'a whole number', number: 'a number', boolean: 'true or false', array: 'a list', object: 'an object', null: 'null' }

function inWords (schema: Expected): string | undefined {
  if (schema.enum) return `one of ${schema.enum.join(', ')}`
  if (schema.type !== 'string') return types[schema.type ?? '']
  const longest = schema.maxLength === undefined ? '' : ` of at most ${schema.maxLength} characters`
  return `a text${longest}${schema.pattern === undefined ? '' : ` that matches ${schema.pattern}`}`
}

/** The schema of a member; undefined where the route's own does not name it. */
function schemaAt (schema: Expected | undefined, steps: readonly string[]): Expected | undefined {
  let at = schema
  for (const step of steps) at = at?.type === 'array' ? at.items : at?.properties?.[step]
  return at
}

/** The sentence for the framework's own error; `reason in the body must be a text of at most 500 characters`, say. */
export function misfitOf ({ validation, validationContext: context }: FastifyError, { routeOptions }: FastifyRequest): string {
  const part = parts[context ?? ''] ?? 'the request'
  const [first] = validation ?? []
  if (!first) return `${part} does not fit`
  const { keyword, instancePath, params, message } = first
  const steps = instancePath.split('/').slice(1)
  if (keyword === 'required') return `${[...steps, String(params.missingProperty)].join('.')} is missing in ${part}`
  const schemas = routeOptions.schema as Record<string, Expected | undefined> | undefined
  const expected = schemaAt(schemas?.[context ?? ''], steps)
  const words = expected && inWords(expected)
  return `${steps.length > 0 ? `${steps.join('.')} in ` : ''}${part} ${words === undefined ? message ?? 'does not fit' : `must be ${words}`}`
}
