/** Keys wake take-ins: which wakes whom, and what a start or a bus that is heard again looks at. */
import t from 'tap'
import { broker } from './support/bus/broker.js'
import { fp, sampleManifest, type Mesh } from './support/bus/buckets.js'
import { proxy } from './support/bus/proxy.js'
import { startGateway, type Gateway } from './support/gateway.js'
import { keys, post, stage } from './support/take-in.js'
import { eventually } from './support/until.js'

const auto = { TAKE_IN: 'auto' }

/** Which modules were taken in because of something, as the log has it. */
const wokenBy = ({ log }: Gateway, why: string): string[] =>
  [...new Set(log.filter(({ by }) => Array.isArray(by) && by.includes(why)).map(({ module }) => String(module)))].sort()

const isTakenIn = (buckets: Mesh, module: string, digit: string): Promise<unknown> => buckets.get('grants', `${module}.${fp(digit)}`)

t.test('each write of builder, indexer and operators wakes the modules it concerns, and no others', async (t) => {
  const { buckets, gateway } = await stage(t, { env: auto })
  await buckets.holder('bus', 'n3')
  await buckets.ready('db', 'a', ['n1'], { module: 'db', offers: { url: 'one' } })
  await buckets.put('inventory', 'binding.m2', { url: { module: 'db', offer: 'url' } })
  await buckets.ready('m2', 'a', ['n2'], { module: 'm2', bound: { url: {} } })
  await buckets.ready('m1', 'a', ['n1'])
  for (const module of ['bus', 'db', 'm1', 'm2']) await eventually(`${module} is taken in`, () => isTakenIn(buckets, module, 'a'), 15_000)
  t.match(await buckets.composition('n2', 'm2'), { bound: { url: 'one' } })

  const again = async (bucket: 'inventory' | 'trunk', key: string) => buckets.put(bucket, key, await buckets.get(bucket, key))
  const table: Array<[string, string[], () => Promise<unknown>]> = [
    ['settings m1', ['m1'], () => buckets.put('settings', 'm1', { port: 5 })],
    ['trunk db', ['db'], () => again('trunk', 'db')],
    [`builds done.m1.${fp('b')}`, ['m1'], () => buckets.done('m1', 'b', sampleManifest('m1', { config: { port: { default: 9 }, more: { default: 1 } } }))],
    ['inventory node.n1', ['db', 'm1'], () => again('inventory', 'node.n1')],
    ['inventory assignment.m2', ['m2'], () => again('inventory', 'assignment.m2')],
    ['inventory binding.m2', ['m2'], () => again('inventory', 'binding.m2')],
    ['inventory module.db', ['db', 'm2'], () => again('inventory', 'module.db')],
    ['inventory seat.broker', ['bus', 'db', 'm1', 'm2'], () => again('inventory', 'seat.broker')]
  ]
  gateway.log.length = 0
  for (const [key, modules, write] of table) {
    await write()
    await eventually(`${key} wakes ${modules.join()}`, () => wokenBy(gateway, `key ${key}`).length >= modules.length)
  }
  t.match(await buckets.composition('n1', 'm1'), { config: { port: 5 } })
  await buckets.trunk('m1', 'b')
  await eventually('the new build is taken in', () => isTakenIn(buckets, 'm1', 'b'))
  t.match(await buckets.composition('n1', 'm1'), { fp: fp('b'), config: { port: 5, more: 1 } })

  // An offer that moves reaches the one that is bound to it.
  await buckets.done('db', 'b', { module: 'db', offers: { url: 'two' } })
  await buckets.trunk('db', 'b')
  await eventually('the bound value moved', async () => (await buckets.composition('n2', 'm2'))?.bound.url === 'two')
  await eventually('and is granted', () => isTakenIn(buckets, 'db', 'b'))
  await buckets.delete('inventory', 'module.m1')
  await eventually('a module that was deleted is cleared away', async () => !await buckets.composition('n1', 'm1'))
  for (const [key, modules] of table.filter(([key]) => key !== 'inventory module.db')) t.same(wokenBy(gateway, `key ${key}`), modules, key)
  t.same(gateway.logged(/take-in failed/), [])
})

t.test("what was in the way at the bus's node is mended by a key that names nobody else: whoever failed by it is taken in", async (t) => {
  const { buckets, nc } = await stage(t, { env: auto, nodes: ['n1', 'n2'] })
  const failed = (module: string) => eventually(`${module} fails`, async () => {
    const { outcome, steps } = await buckets.get('takeins', module) ?? {}
    return outcome === 'step-failed' && steps.at(-1).step === 'busHolder'
  }, 10_000)
  await buckets.holder('bus', 'n3')
  await Promise.all(['m1', 'm2'].map((module) => buckets.ready(module, 'a', ['n1'])))
  await Promise.all(['m1', 'm2'].map(failed))
  await buckets.node('n3')
  for (const module of ['bus', 'm1', 'm2']) await eventually(`node.n3 is there: ${module}`, () => isTakenIn(buckets, module, 'a'))

  await buckets.assign('bus', ['n1'])
  await failed('bus')
  await buckets.ready('m3', 'a', ['n1'])
  await failed('m3')
  await buckets.assign('bus', ['n1', 'n3'])
  await eventually('the assignment names the seat again: m3', () => isTakenIn(buckets, 'm3', 'a'))

  const agent = await broker(t, nc, { server: 's1', says: 'its disk is full' })
  await buckets.seat('bus', 'n3', ['s1'])
  await Promise.all(['bus', 'm1', 'm2', 'm3'].map(failed))
  agent.says = 'applied'
  await buckets.put('settings', 'm1', { port: 1 })
  for (const module of ['bus', 'm1', 'm2', 'm3']) {
    await eventually(`the server takes its users again: ${module}`, async () => (await buckets.get('takeins', module))?.outcome !== 'step-failed')
  }
  t.match((await buckets.get('takeins', 'm2'))?.by, ["the bus's node goes through again"])
})

t.test('TAKE_IN=manual: keys wake nobody, a POST does', async (t) => {
  const on = await stage(t)
  await on.buckets.ready('m1', 'a', ['n1'])
  await on.buckets.ready('m2', 'a', ['n1'])
  t.match((await post(on, 'm1')).json, { outcome: 'taken-in' })
  t.same(on.spy.of('compositions').map(({ key }) => key), ['n1.m1'])
  await eventually('the POST is in the log', () => on.gateway.logged(/take-in: /).length > 0)
  t.equal(on.gateway.logged(/take-in: /).length, 1, 'and nothing else')
})

t.test('a start looks at every module once, the broker module first, and takes in what waits; so does a bus that is heard again', async (t) => {
  const { server, buckets, spy, gateway: first } = await stage(t)
  await first.stop()
  await buckets.holder('bus', 'n3')
  for (const module of ['m1', 'm2', 'm3']) await buckets.ready(module, 'a', ['n1'])
  const between = await proxy(t, server.port)
  const gateway = await startGateway(t, { natsUrl: between.url, ready: true, keys, env: auto })
  for (const module of ['bus', 'm1', 'm2', 'm3']) await eventually(`${module} is taken in`, () => isTakenIn(buckets, module, 'a'))
  await eventually('all four have ended', () => wokenBy(gateway, 'start').length === 4)
  t.same(wokenBy(gateway, 'start'), ['bus', 'm1', 'm2', 'm3'])
  t.equal(spy.of('inventory').filter(({ value }) => value?.trunk !== undefined && value.module !== 'bus').length, 3)

  // What is written while the gateway is cut off.
  gateway.log.length = 0
  between.cut()
  await eventually('the gateway knows', () => gateway.logged(/the bus is away/).length > 0)
  await buckets.done('m1', 'b')
  await buckets.trunk('m1', 'b')
  await buckets.delete('grants', `m2.${fp('a')}`)
  between.mend()
  await eventually('the build is taken in', () => isTakenIn(buckets, 'm1', 'b'))
  await eventually('a write that was undone is done again', () => isTakenIn(buckets, 'm2', 'a'))
  await eventually('every module was looked at', () => wokenBy(gateway, 'the bus is heard again').length === 4)

  // A gateway that starts where all is well writes no more than what it saw.
  await gateway.stop()
  const from = spy.writes.length
  const third = await startGateway(t, { natsUrl: server.url, ready: true, keys, env: auto })
  await eventually('it looked', () => wokenBy(third, 'start').length === 4)
  await third.stop()
  t.same(spy.writes.slice(from).filter(({ bucket }) => bucket !== 'takeins'), [])
})
