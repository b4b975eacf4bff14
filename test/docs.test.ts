/** What the reference pages list is what the code has, both ways. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Validator } from '@seriousme/openapi-schema-validator'
import t from 'tap'
import { BrokerEnvironmentSchema } from '../src/agents/broker-config.js'
import { describe, openapiFile } from '../src/commands/openapi.js'
import { EnvironmentSchema } from '../src/config.js'
import { problems } from '../src/core/errors.js'
import { bucketNames } from '../src/core/ports.js'
import { places } from '../src/core/state/place.js'
import { closeCodes } from '../src/http/close-codes.js'
import { packageRoot } from '../src/package-info.js'

const page = (name: string): string => readFileSync(join(packageRoot, 'docs', name), 'utf8')
/** The first cells of the rows of a page's tables that are code. */
const rows = (text: string): string[] => [...text.matchAll(/^\| `([^`]+)`/gm)].map(([, cell]) => cell as string)
const sorted = (names: Iterable<string>): string[] => [...new Set(names)].sort()

t.test('docs/errors.md lists the problems of the catalogue, with their statuses', async (t) => {
  const text = page('errors.md')
  t.same(sorted(rows(text)), sorted(Object.keys(problems)))
  for (const [name, { status }] of Object.entries(problems)) t.match(text, new RegExp(`\\| \`${name}\` \\| ${status} \\|`), name)
})

t.test('docs/configuration.md lists the variables that are read, with their defaults', async (t) => {
  const text = page('configuration.md')
  const beside = ['NODE_CURVE_SEED_FILE', 'NATS_SERVER_BIN', 'MESH_CACHE_DIR']
  const read = { ...EnvironmentSchema.properties, ...BrokerEnvironmentSchema.properties }
  t.same(sorted(rows(text)), sorted([...Object.keys(read), ...beside]))
  for (const [name, schema] of Object.entries(read)) {
    const standard: unknown = (schema as { default?: unknown }).default
    if (standard === undefined || standard === '') continue
    t.ok([`| \`${name}\` | ${standard} |`, `| \`${name}\` | \`${standard}\` |`].some((row) => text.includes(row)), `${name} is ${standard}`)
  }
})

t.test('docs/bus.md lists the buckets', async (t) => {
  const text = page('bus.md')
  for (const bucket of bucketNames) t.ok(rows(text).includes(bucket), bucket)
})

t.test('docs/watch.md lists the close codes that are said', async (t) => {
  const listed = [...page('watch.md').matchAll(/^\| (\d{4}) /gm)].map(([, code]) => Number(code))
  // 1009 is the library's, for a message that is too large.
  t.same(listed, [...Object.values(closeCodes), 1009].sort((a, b) => a - b))
})

t.test('docs/state.md lists the words for where a module stands, in their precedence', async (t) => {
  t.same(rows(page('state.md')).filter((cell) => !cell.includes(' ')), places)
})

t.test('openapi.yaml is what the routes\' schemas say (npm run openapi writes it), and valid', async (t) => {
  const file = readFileSync(openapiFile, 'utf8')
  t.equal(file, await describe())
  const { valid, errors } = await new Validator().validate(openapiFile)
  t.ok(valid, JSON.stringify(errors))
})

t.test('docs/security.md names tests that are there', async (t) => {
  const named = [...page('security.md').matchAll(/`(test\/[\w.-]+\.test\.ts)`(?: "([^"]+)")?/g)]
  t.ok(named.length > 10)
  for (const [, file = '', title] of named) {
    const text = readFileSync(join(packageRoot, file), 'utf8').replaceAll("\\'", "'")
    if (title !== undefined) t.ok(text.includes(title), `${file}: ${title}`)
  }
})
