/** Requests made from openapi.yaml: right ones, and ones that are wrong in any part. */
import fc from 'fast-check'
import { request, type RequestHeaders } from '../../support/wire/bytes.js'
import { rawHttp } from '../../support/wire/http.js'
import { operations } from '../../support/wire/spec.js'
import { kind } from '../kind.js'
import { anyJson, anyText, mostlyNot, mutatedText, oddJson } from '../mutate.js'
import { boundMs, type Stage } from '../stage.js'

const examples: Record<string, string[]> = {
  kind: ['config', 'bound', 'secret'], key: ['port', 'db', '..', 'a%2Fb', '%252F', 'none'], name: ['m1', 'm2', 'none', 'node-a']
}

const encoded = anyText.map((text) => encodeURIComponent(Buffer.from(text).toString()))
/** Printable ASCII, as a target must be to be read at all, and at times not. */
const segment = (name: string): fc.Arbitrary<string> => {
  const good = fc.constantFrom(...examples[name] ?? ['x'])
  return fc.oneof({ weight: 4, arbitrary: good }, { weight: 2, arbitrary: encoded }, { weight: 1, arbitrary: mutatedText(good, 2).map(targetOf) })
}
const targetOf = (text: string): string => text.replace(/[\s\u007f-\uffff]/gu, '')

const query = fc.oneof({ weight: 4, arbitrary: fc.constant('') }, { weight: 1, arbitrary: encoded.map((text) => `?${text}=${text}`) },
  { weight: 1, arbitrary: fc.constantFrom('?', '?module=m2', '?access_token=x', `?${'x'.repeat(9000)}`) })

const headerValue = (...good: string[]): fc.Arbitrary<string | undefined> => mostlyNot(fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...good) },
  { weight: 1, arbitrary: mutatedText(fc.constantFrom(...good), 2).map((text) => text.replace(/[^\t -~\u00a0-\u00ff]/g, '')) },
  { weight: 1, arbitrary: anyText.map((text) => text.replace(/[^\t -~\u00a0-\u00ff]/g, '')) }
))

const headers: fc.Arbitrary<RequestHeaders> = fc.record({
  'If-None-Match': headerValue('*', '"x"', 'W/"x"', '"', '"a", "b"'),
  'If-Match': headerValue('*', '"x"', 'W/"x"', '"a", "b"'),
  'Cache-Control': headerValue('no-cache', 'stale-if-error=10', 'stale-if-error=-1', 'stale-if-error=99999999999', 'max-age=0, no-cache'),
  Prefer: headerValue('wait=0', 'wait=-1', 'wait=x', 'respond-async, wait=0'),
  Accept: headerValue('*/*', 'text/event-stream', 'application/json', 'text/event-stream;q=0', 'text/html, text/event-stream'),
  'Last-Event-ID': headerValue('x', '"x"', 'refused.x'),
  Origin: headerValue('https://dash.example', 'null', 'https://evil.example', 'http://127.0.0.1'),
  'Content-Type': headerValue('application/json', 'text/plain', 'application/json; charset=utf-8', 'application/problem+json', 'multipart/form-data', ';', 'a/b;c'),
  Expect: headerValue('100-continue', 'x'),
  Upgrade: headerValue('websocket', 'h2c', 'websocket, h2c'),
  'Sec-WebSocket-Key': headerValue('dGhlIHNhbXBsZSBub25jZQ==', 'x'),
  'Sec-WebSocket-Version': headerValue('13', '8'),
  'Sec-WebSocket-Protocol': headerValue('mesh.provision.v1', 'other', 'bearer.x', 'mesh.provision.v1, bearer.a.b.c'),
  'Access-Control-Request-Method': headerValue('GET', 'DELETE', 'x'),
  'X-Forwarded-For': headerValue('10.0.0.1', 'x'),
  'X-HTTP-Method-Override': headerValue('DELETE')
}, { requiredKeys: [] })

const body = fc.oneof(
  { weight: 4, arbitrary: fc.constant('') },
  { weight: 2, arbitrary: fc.constant('{}') },
  { weight: 2, arbitrary: anyJson().map((value) => JSON.stringify(value)) },
  { weight: 2, arbitrary: anyText.map((reason) => JSON.stringify({ reason, module: 'm2' })) },
  { weight: 1, arbitrary: oddJson },
  { weight: 1, arbitrary: anyText }
)

interface Drawn { method: string, target: string, who: Who, headers: RequestHeaders, body: string }
type Who = keyof Stage['tokens'] | 'nobody' | 'two' | 'broken'
const who = fc.constantFrom<Who>('m1', 'm1', 'm1', 'm2', 'operator', 'operator', 'operator', 'reader', 'nobody', 'two', 'broken')

const input: fc.Arbitrary<Drawn> = fc.constantFrom(...operations).chain(({ method, path }) => fc.record({
  method: fc.oneof({ weight: 6, arbitrary: fc.constant(method) },
    { weight: 1, arbitrary: fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'M-SEARCH') }),
  target: fc.tuple(
    fc.tuple(...path.split('/').slice(1).map((part) => part.startsWith('{') ? segment(part.slice(1, -1)) : fc.constant(part))).map((parts) => `/${parts.join('/')}`),
    query, mostlyNot(mutatedText(fc.constant(path), 3).map((text) => `/${targetOf(text)}`))
  ).map(([good, search, other]) => (other ?? good) + search),
  who,
  headers,
  body
}))

const authorization = (stage: Stage, who: Who): RequestHeaders => {
  const { tokens } = stage
  if (who === 'nobody') return {}
  if (who === 'two') return { Authorization: [`Bearer ${tokens.m1}`, `Bearer ${tokens.m2}`] }
  return { Authorization: `Bearer ${who === 'broken' ? tokens.m1.slice(0, -9) : tokens[who]}` }
}

/** What only the module m1 may be told. */
const ofM1 = 'db.mesh'

export const httpKind = kind<Drawn>({
  promise: 'whatever is asked over HTTP, the answer is one that openapi.yaml has, in time, and never a 500 nobody meant',
  runs: 700,
  input,
  async attempt (stage, { method, target, who, headers, body }) {
    const all: RequestHeaders = { ...authorization(stage, who), ...headers }
    if (headers.Upgrade !== undefined) all.Connection = 'Upgrade'
    const opens = headers.Upgrade !== undefined || (headers.Accept ?? '').includes('event-stream')
    // Header values go as Latin-1, which is what HTTP has.
    const bytes = Buffer.from(request(method, target, all), 'latin1')
    const sent = body === '' ? bytes : Buffer.from(request(method, target, all, body))
    const { responses: [answer], raw, ms, closed } = await rawHttp(stage.port, sent, { wait: boundMs, head: method === 'HEAD', ...(opens ? { count: 1 } : {}) })
    if (!answer) throw new Error(`no answer (${closed ?? 'still open'} after ${ms} ms)`)
    if (ms >= boundMs) throw new Error(`${answer.status} and the connection still open after ${ms} ms`)
    if (answer.status === 500 && answer.body.includes('problem:internal')) throw new Error(`an internal error: ${answer.body}`)
    if (who !== 'm1' && raw.includes(ofM1)) throw new Error(`a value of m1 was told to ${who}`)
    return `${method} ${answer.status}`
  }
})
