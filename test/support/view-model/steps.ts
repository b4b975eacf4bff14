/** What can happen to a view, drawn at random. */
import fc from 'fast-check'
import type { Content } from './mesh.js'
import { modules, names } from './mesh.js'

export type Flow = 'nothing' | 'asks' | 'all'
export type Step =
  | { do: 'write', module: string, values: Array<[value: number, content: Content]> }
  | { do: 'remove', module: string }
  | { do: 'restore', back: number }
  | { do: 'recreate', epochs: number }
  | { do: 'apply', by: number, most: number, wide: boolean }
  | { do: 'die', by: number, how: 'gone' | 'mute' }
  | { do: 'rise', by: number, behind: number }
  | { do: 'see', which: number, by: number }
  | { do: 'serve', which: number }
  | { do: 'fail', which: number, how: 'bad-answer' | 'unavailable' }
  | { do: 'fault', value: number, fault: 'bad-answer' | 'unavailable' | 'mute' | undefined }
  | { do: 'hear', by: number, most: number }
  | { do: 'repeat' | 'half-open' | 'mend' | 'deafen' | 'reconnect' | 'confirm' | 'turn' | 'crowd-leaves' }
  | { do: 'lose', failFirst: boolean }
  | { do: 'watch', client: number, value: number, keep: boolean }
  | { do: 'unwatch', client: number, value: number }
  | { do: 'get', client: number, value: number, noCache: boolean }
  | { do: 'end', client: number }
  | { do: 'slow', client: number, slow: boolean }
  | { do: 'crowd', value: number }
  | { do: 'pass', ms: number, flow: Flow }

export const clients = 3
const client = fc.nat(clients - 1)
const value = fc.nat(names.length - 1)
const by = fc.nat(1)
const which = fc.nat(3)
const module = fc.constantFrom(...modules)
// Few, so that they come back; of different kinds of JSON, and refusals among them.
const content = fc.constantFrom('0', '1', 'null', '"x"', '!not bound', '!withdrawn')
const step = <D extends Step['do'], T>(name: D, rest: { [K in keyof T]: fc.Arbitrary<T[K]> }) => fc.record({ do: fc.constant(name), ...rest }) as unknown as fc.Arbitrary<Step>
const bare = (...steps: Array<Step['do']>) => fc.constantFrom(...steps).map((name) => ({ do: name }) as Step)

const asked: Array<fc.WeightedArbitrary<Step>> = [
  { weight: 5, arbitrary: step('see', { which, by }) },
  { weight: 8, arbitrary: step('serve', { which }) },
  { weight: 3, arbitrary: step('fail', { which, how: fc.constantFrom('bad-answer', 'unavailable') }) },
  { weight: 9, arbitrary: step('hear', { by, most: fc.nat({ max: 3 }) }) },
  { weight: 2, arbitrary: bare('repeat') },
  { weight: 2, arbitrary: bare('turn') }
]
const clientSteps: Array<fc.WeightedArbitrary<Step>> = [
  { weight: 10, arbitrary: step('watch', { client, value, keep: fc.boolean() }) },
  { weight: 3, arbitrary: step('unwatch', { client, value }) },
  { weight: 7, arbitrary: step('get', { client, value, noCache: fc.boolean() }) },
  { weight: 1, arbitrary: step('end', { client }) },
  { weight: 3, arbitrary: step('slow', { client, slow: fc.boolean() }) },
  { weight: 1, arbitrary: step('crowd', { value }) },
  { weight: 1, arbitrary: bare('crowd-leaves') }
]
const writes: Array<fc.WeightedArbitrary<Step>> = [
  { weight: 9, arbitrary: step('write', { module, values: fc.array(fc.tuple(value, content), { minLength: 1, maxLength: 3 }) }) },
  { weight: 1, arbitrary: step('remove', { module }) },
  { weight: 10, arbitrary: step('apply', { by, most: fc.integer({ min: 1, max: 3 }), wide: fc.boolean() }) }
]
const faults: Array<fc.WeightedArbitrary<Step>> = [
  { weight: 1, arbitrary: step('restore', { back: fc.integer({ min: 1, max: 4 }) }) },
  { weight: 1, arbitrary: step('recreate', { epochs: fc.constantFrom(-1, 1) }) },
  { weight: 2, arbitrary: step('die', { by, how: fc.constantFrom('gone', 'mute') }) },
  { weight: 3, arbitrary: step('rise', { by, behind: fc.nat({ max: 2 }) }) },
  { weight: 3, arbitrary: step('fault', { value, fault: fc.constantFrom('bad-answer', 'unavailable', 'mute', undefined, undefined, undefined) }) },
  { weight: 2, arbitrary: step('lose', { failFirst: fc.boolean() }) },
  { weight: 1, arbitrary: bare('deafen') },
  { weight: 1, arbitrary: bare('half-open') },
  { weight: 1, arbitrary: bare('mend') },
  { weight: 4, arbitrary: bare('reconnect') },
  { weight: 4, arbitrary: bare('confirm') }
]
const time: Array<fc.WeightedArbitrary<Step>> = [
  { weight: 9, arbitrary: step('pass', { ms: fc.constantFrom(25, 50, 100, 500, 1000), flow: fc.constantFrom('nothing', 'asks', 'all') }) },
  { weight: 3, arbitrary: step('pass', { ms: fc.constantFrom(2100, 5200, 7500), flow: fc.constantFrom('nothing', 'asks', 'all', 'all') }) }
]

const many = (...steps: Array<fc.WeightedArbitrary<Step>>) => fc.array(fc.oneof(...steps), { maxLength: 70, size: 'max' })

/** Everything at once. */
export const anything = many(...asked, ...clientSteps, ...writes, ...faults, ...time)
/** Nothing fails: values move, two provisioners follow at their pace, readers come and go. */
export const orderly = many(...asked.filter((_, at) => at !== 2), ...clientSteps, ...writes)

/** One thing that fails for everybody and ends again, with some writes while it lasts. */
export const outage: fc.Arbitrary<{ begins: Step[], lasts: Step[], ends: Step[] }> = fc.record({
  what: fc.constantFrom<{ begins: Step[], ends: Step[] }>(
    { begins: [{ do: 'half-open' }], ends: [{ do: 'mend' }] },
    { begins: [{ do: 'half-open' }], ends: [{ do: 'lose', failFirst: false }, { do: 'reconnect' }, { do: 'confirm' }] },
    { begins: [{ do: 'lose', failFirst: true }], ends: [{ do: 'reconnect' }, { do: 'confirm' }] },
    { begins: [{ do: 'deafen' }], ends: [{ do: 'reconnect' }, { do: 'confirm' }] },
    ...(['mute', 'gone'] as const).map((how): { begins: Step[], ends: Step[] } => ({
      begins: [0, 1].map((by) => ({ do: 'die', by, how })),
      ends: [0, 1].map((by) => ({ do: 'rise', by, behind: 0 }))
    }))
  ),
  lasts: fc.array(fc.oneof(...writes, ...clientSteps, ...time), { maxLength: 12, size: 'max' })
}).map(({ what, lasts }) => ({ ...what, lasts }))
