/** Documents in the buckets, as builder, indexer and operators could get them wrong, and whatever else may stand there. */
import fc from 'fast-check'
import type { BucketName } from '../../../src/core/ports.js'
import { commitOf, fp } from '../../support/bus/buckets.js'
import { http, type HttpResult } from '../../support/wire/http.js'
import { kind } from '../kind.js'
import { anyJson, anyText, documentBytes } from '../mutate.js'
import { valueMark, type Stage } from '../stage.js'

const curve = (letter: string): string => `X${letter.repeat(55)}`

const manifest = {
  module: 'd1',
  config: {
    port: { default: 8080, schema: { type: 'integer', minimum: 1 } },
    name: { default: valueMark, schema: { type: 'string', pattern: '^[a-z0-9-]*$', maxLength: 40 } },
    list: { default: [1, { a: null }], schema: { type: 'array', items: { anyOf: [{ type: 'number' }, { type: 'object', properties: { a: true } }] } } }
  },
  secrets: ['password'],
  offers: { url: valueMark },
  permissions: { publish: ['orders.>', 'a.*.b'], subscribe: ['orders.*'] }
}
const sealed = { user: `U${'A'.repeat(55)}`, sealed: 'AA', by: curve('A'), to: curve('B') }
const composition = { node: 'd-node', module: 'd1', fp: fp('a'), commit: commitOf('a'), config: { port: 1 }, bound: {}, secrets: ['password'], credential: sealed }

/** Each document that a take-in of d1 reads, or that stands where it writes; `holder` is the broker module. */
const good: Array<{ bucket: BucketName, key: string, value: unknown }> = [
  { bucket: 'trunk', key: 'd1', value: { fp: fp('a'), commit: commitOf('a') } },
  { bucket: 'builds', key: `done.d1.${fp('a')}`, value: { fp: fp('a'), commit: commitOf('a'), manifest } },
  { bucket: 'builds', key: `done.d1.${fp('a')}`, value: { fp: fp('a'), commit: commitOf('a'), manifest: { ...manifest, bound: { db: {} } } } },
  { bucket: 'inventory', key: 'module.d1', value: { module: 'd1' } },
  { bucket: 'inventory', key: 'module.d1', value: { module: 'd1', fp: fp('b'), commit: commitOf('b'), trunk: '1.1', manifest } },
  { bucket: 'inventory', key: 'module.holder', value: { module: 'holder', fp: fp('a'), commit: commitOf('a'), trunk: '1.1', manifest: { module: 'holder' } } },
  { bucket: 'inventory', key: 'assignment.d1', value: { nodes: ['d-node'] } },
  { bucket: 'inventory', key: 'assignment.d2', value: { nodes: ['d-node', 'node-a'] } },
  { bucket: 'inventory', key: 'node.d-node', value: { node: 'd-node', curve: curve('A') } },
  { bucket: 'inventory', key: 'seat.broker', value: { module: 'holder', node: 'd-node', servers: [] } },
  { bucket: 'inventory', key: 'binding.d1', value: { db: { module: 'd2', offer: 'url' }, port: { module: 'd1', offer: 'url' } } },
  { bucket: 'inventory', key: 'binding.d2', value: { db: { module: 'd1', offer: 'url' } } },
  { bucket: 'settings', key: 'd1', value: { port: 9, name: valueMark, list: [], other: valueMark } },
  { bucket: 'compositions', key: 'd-node.d1', value: composition },
  { bucket: 'compositions', key: 'd-node.holder', value: { ...composition, module: 'holder', users: [{ module: 'd1', publish: ['a'], subscribe: [], users: [{ node: 'd-node', user: sealed.user }] }] } },
  { bucket: 'grants', key: `d1.${fp('a')}`, value: { module: 'd1', fp: fp('a'), commit: commitOf('a'), nodes: { 'd-node': '1.1' } } },
  { bucket: 'grants', key: `d1.${fp('b')}`, value: { module: 'd1', fp: fp('b'), commit: commitOf('b'), nodes: {} } },
  { bucket: 'takeins', key: 'd1', value: { outcome: 'current', at: '2026-01-01T00:00:00.000Z', by: [], steps: [] } }
]

const keyOf = (key: string): fc.Arbitrary<string> => fc.oneof({ weight: 8, arbitrary: fc.constant(key) },
  { weight: 1, arbitrary: fc.constantFrom('module.D1', 'module.', 'assignment.d1.x', 'node.d-node.y', 'seat.other', 'done.d1', 'done.d1.fp2-x', 'd1.x', 'd-node.d1.z', '_', 'binding.-', '=', 'd1/x') })

/** Odd parts of documents: the mark stands where values do, and JSON Schema's own words may stand anywhere. */
const leaf = fc.oneof(
  { weight: 2, arbitrary: anyText },
  { weight: 2, arbitrary: fc.constantFrom<unknown>('d1', 'd2', 'd-node', 'node-a', 'none', fp('a'), fp('c'), 'fp1-x', 'a.b', 'a..b', '>', 'mesh.x', '$SYS.>', ['a', 'a'], curve('C'), '1.2') },
  { weight: 1, arbitrary: fc.constantFrom<unknown>({ $ref: '#' }, { $ref: 'http://127.0.0.1:9/x' }, { type: 'x' }, { pattern: '(' }, { pattern: '(a+)+$' }, { format: 'x' }, { $id: 'x' }, { default: valueMark }) },
  { weight: 1, arbitrary: anyJson() }
)

interface Drawn { writes: Array<{ bucket: BucketName, key: string, bytes: Buffer | null }>, plan: boolean }

const write = fc.constantFrom(...good).chain(({ bucket, key, value }) => fc.record({
  bucket: fc.constant(bucket),
  key: keyOf(key),
  bytes: fc.option(documentBytes(fc.constant(value), leaf), { nil: null, freq: 12 })
}))

async function put ({ mesh }: Stage, bucket: BucketName, key: string, bytes: Buffer | null): Promise<void> {
  if (bytes === null) await mesh.kv[bucket].delete(key)
  else await mesh.kv[bucket].put(key, bytes)
}

const setUp = new WeakSet<Stage>()

/** All documents of d1, d2 and the holder as they should be; what else was written goes. */
async function mend (stage: Stage, also: Drawn['writes'] = []): Promise<void> {
  const { mesh } = stage
  const others = [...also.map(({ bucket, key }) => [bucket, key] as const), ...good.map(({ bucket, key }) => [bucket, key] as const)]
  for (const [bucket, key] of others) await mesh.kv[bucket].purge(key)
  await mesh.node('d-node')
  await mesh.holder('holder', 'd-node')
  await mesh.ready('d2', 'a', ['d-node'], { module: 'd2', offers: { url: 'x' } })
  await mesh.ready('d1', 'a', ['d-node'], manifest)
}

const ask = (stage: Stage, method: 'GET' | 'POST', module = 'd1'): Promise<HttpResult> =>
  http(stage.port, method, `/modules/${module}/take-in`, { token: stage.tokens.operator, wait: 25_000 })

const isInternal = ({ status, body }: HttpResult): boolean => status === 0 || (status >= 500 && /problem:internal|problem:timeout/.test(body))

function judge (what: string, answer: HttpResult): void {
  if (isInternal(answer)) throw new Error(`${what} is answered ${answer.status} after ${answer.ms} ms: ${answer.body.slice(0, 500)}`)
  const texts = answer.status >= 400 ? answer.body : JSON.stringify([answer.json?.said, answer.json?.steps])
  if (texts.includes(valueMark)) throw new Error(`${what} says a value: ${texts.slice(0, 800)}`)
}

export const documentsKind = kind<Drawn>({
  promise: 'whatever stands in the buckets, a take-in ends with a sentence or a name, and the next good documents are taken in',
  runs: 15,
  input: fc.record({ writes: fc.array(write, { minLength: 1, maxLength: 3 }), plan: fc.boolean() }),
  async attempt (stage, { writes, plan }) {
    if (!setUp.has(stage)) {
      await mend(stage)
      setUp.add(stage)
    }
    // d1 is registered and composed, so that there is something to be wrong beside.
    await ask(stage, 'POST')
    const written: Drawn['writes'] = []
    for (const { bucket, key, bytes } of writes) {
      try {
        await put(stage, bucket, key, bytes)
        written.push({ bucket, key, bytes })
      } catch { /* a key that the bucket itself refuses */ }
    }
    if (plan) judge('the plan', await ask(stage, 'GET'))
    const taken = await ask(stage, 'POST')
    judge('the take-in', taken)
    judge('the take-in of another', await ask(stage, 'POST', 'd2'))
    await mend(stage, written)
    const after = await ask(stage, 'POST')
    if (after.status !== 200) throw new Error(`good documents after these are answered ${after.status}: ${after.body.slice(0, 500)}`)
    return taken.status === 500 ? `step-failed ${taken.json?.step}` : String(taken.json?.outcome ?? taken.status)
  }
})
