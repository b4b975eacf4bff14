/** JSON-RPC messages on the watch's socket: good ones, and ones that are changed in any part. */
import fc from 'fast-check'
import { problems } from '../../../src/core/errors.js'
import { FIXTURE } from '../../support/fixture.js'
import { rpc, text } from '../../support/wire/frames.js'
import { ws, type Message } from '../../support/wire/websocket.js'
import { kind } from '../kind.js'
import { anyJson, anyText, mutatedJson, mutatedText, oddJson } from '../mutate.js'
import { boundMs } from '../stage.js'

const keys = fc.oneof(fc.constantFrom(...Object.keys(FIXTURE.m1?.config ?? {}), 'db', 'none'), anyText)
const ids = fc.oneof(fc.integer({ min: 0, max: 9 }), fc.constantFrom('a', 'b', '', null), anyText)
/** Stands for a token in what is drawn: a seed gives the same messages each time. */
const renewals = ['of m1', 'of m2', 'of an operator', 'broken']

const call = fc.record({
  method: fc.constantFrom('provision.get', 'provision.watch', 'provision.unwatch', 'auth.renew'),
  kind: fc.constantFrom('config', 'config', 'bound', 'secret', 'other'),
  key: keys,
  id: ids,
  more: fc.oneof(fc.constant({}), fc.record({ since: anyText, keep: fc.boolean() }), fc.constant({ module: 'm2', keep: true })),
  token: fc.constantFrom(...renewals)
}).map(({ method, kind, key, id, more, token }) => rpc(method, method === 'auth.renew' ? { token } : { kind, key, ...more }, id))

const message: fc.Arbitrary<string> = fc.oneof(
  { weight: 4, arbitrary: call.map((one) => JSON.stringify(one)) },
  { weight: 4, arbitrary: mutatedJson(call).map((one) => JSON.stringify(one) ?? '') },
  { weight: 2, arbitrary: mutatedText(call.map((one) => JSON.stringify(one))) },
  { weight: 1, arbitrary: fc.array(call, { maxLength: 3 }).map((batch) => JSON.stringify(batch)) },
  { weight: 1, arbitrary: anyJson().map((value) => JSON.stringify(value)) },
  { weight: 1, arbitrary: oddJson }
)

/** The id of the answer that a message must have, as JSON; undefined where it has none. */
function idOfAnswer (sent: string): string | undefined {
  let one: unknown
  try { one = JSON.parse(sent) } catch { return 'null' }
  if (typeof one !== 'object' || one === null || Array.isArray(one)) return 'null'
  const { id, jsonrpc, method } = one as Record<string, unknown>
  const isId = id === null || typeof id === 'string' || (typeof id === 'number' && Number.isFinite(id))
  if (id === undefined) return jsonrpc === '2.0' && typeof method === 'string' ? undefined : 'null'
  return isId ? JSON.stringify(id) : 'null'
}

const codes = new Set([-32700, -32600, -32601, -32602, -32001, -32002, -32003, -32004])

/** Why an answer is none of those that docs/watch.md has; undefined where it is. */
function fault ({ result, error, raw }: Message): string | undefined {
  if ((result === undefined) === (error === undefined)) return 'neither a result nor an error, or both'
  if (error !== undefined) {
    if (!codes.has(error.code)) return `the code ${error.code}`
    if (typeof error.message !== 'string') return 'no message'
    const { data } = error
    if (error.code <= -32000 && error.code >= -32099 && !Object.values(problems).some(({ status }) => status === data?.status)) return 'no problem in data'
    return raw.includes('db.mesh') ? 'a value in an error' : undefined
  }
  if ('value' in result && JSON.stringify(result.value) !== JSON.stringify((FIXTURE.m1 as never)[result.kind]?.[result.key])) return 'a value that was not said'
  return undefined
}

const sorted = (ids: string[]): string => ids.sort().join(' ')

export const rpcKind = kind<string[]>({
  promise: 'each message with an id is answered once, in a form that docs/watch.md has, whatever it is',
  runs: 150,
  input: fc.array(message, { minLength: 1, maxLength: 8 }),
  async attempt (stage, drawn) {
    const { tokens } = stage
    const token: Record<string, string> = { 'of m1': tokens.m1, 'of m2': tokens.m2, 'of an operator': tokens.operator }
    const sent = drawn
      .map((one) => Buffer.from(renewals.reduce((filled, name) => filled.replaceAll(`"${name}"`, () => `"${token[name] ?? 'a.b.c'}"`), one)).toString())
      .filter((one) => Buffer.byteLength(one) <= 16_384)
    const socket = await ws(stage.owner, stage.port, { token: tokens.m1 })
    try {
      for (const one of sent) socket.send(text(one))
      const last = 'the last one'
      const expected = [...sent.map(idOfAnswer).filter((id) => id !== undefined), JSON.stringify(last)]
      const answers = (): Message[] => socket.texts().filter((one) => one.method === undefined)
      socket.request('provision.unwatch', { kind: 'config', key: 'last' }, last)
      await socket.until(() => answers().length >= expected.length || socket.closed, boundMs)
      // What must not come would come before the answer to one more.
      socket.request('provision.unwatch', { kind: 'config', key: 'last' }, `${last}, again`)
      await socket.until(({ id }) => id === `${last}, again`, boundMs)
      const got = answers().filter(({ id }) => id !== `${last}, again`)
      if (socket.closed) throw new Error(`closed with ${socket.closeCode}`)
      if (sorted(got.map(({ id }) => JSON.stringify(id))) !== sorted(expected)) {
        throw new Error(`answered ${sorted(got.map(({ id }) => JSON.stringify(id)))}, asked ${sorted(expected)}`)
      }
      for (const one of got) {
        const why = fault(one)
        if (why !== undefined) throw new Error(`${why}: ${one.raw.slice(0, 300)}`)
      }
      const [first] = got
      return first?.error ? String(first.error.code) : 'result'
    } finally {
      socket.end()
    }
  }
})
