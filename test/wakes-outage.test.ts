/** No wake is lost however the bus and its buckets come and go (case R4). */
import t from 'tap'
import { fp, mesh, type Mesh } from './support/bus/buckets.js'
import { copyOf, putBack } from './support/bus/copy.js'
import type { Gateway } from './support/gateway.js'
import { post, stage } from './support/take-in.js'
import { eventually } from './support/until.js'
import { http } from './support/wire/http.js'

const auto = { TAKE_IN: 'auto' }

/** Which modules were taken in because of something, as the log has it. */
const wokenBy = ({ log }: Gateway, why: string): string[] =>
  [...new Set(log.filter(({ by }) => Array.isArray(by) && by.includes(why)).map(({ module }) => String(module)))].sort()

const isTakenIn = (buckets: Mesh, module: string, digit: string): Promise<unknown> => buckets.get('grants', `${module}.${fp(digit)}`)

t.test('R4: a server that is killed and started again under the watches costs no wake, and leaves no consumer behind', async (t) => {
  const { server, buckets, gateway } = await stage(t, { env: auto })
  await buckets.hold('m1')
  await buckets.assign('m1', ['n1'])
  await buckets.trunk('m1', 'a')
  const outcome = async () => (await buckets.get('takeins', 'm1'))?.outcome
  await eventually('m1 waits for its build', async () => await outcome() === 'waiting')
  /** A write that is made again until the server, just back, has taken it. */
  const surely = (what: string, write: () => Promise<unknown>) => eventually(what, () => write().catch(() => undefined), 20_000)
  const consumers = async () => {
    let count = 0
    for (const bucket of ['trunk', 'builds', 'settings', 'inventory', 'compositions', 'grants', 'takeins']) {
      count += (await buckets.jsm.streams.info(`KV_mesh_${bucket}`)).state.consumer_count
    }
    return count
  }
  await eventually('four watches', async () => await consumers() === 4)

  await server.kill()
  await server.start()
  await surely('the key is written at once', () => buckets.done('m1', 'a'))
  await eventually('and the build is taken in', () => isTakenIn(buckets, 'm1', 'a').catch(() => undefined), 10_000)

  for (let restart = 0; restart < 6; restart++) {
    await server.kill()
    await server.start()
  }
  await surely('a trunk value', () => buckets.trunk('m1', 'b'))
  await surely('a done key', () => buckets.done('m1', 'b'))
  await eventually('a new build is taken in', () => isTakenIn(buckets, 'm1', 'b').catch(() => undefined), 10_000)
  await eventually('as many consumers as watches', async () => await consumers() === 4, 10_000)
  await gateway.ready()

  gateway.log.length = 0
  await buckets.put('settings', 'm1', { port: 1 })
  await eventually('a write wakes', () => wokenBy(gateway, 'key settings m1').length === 1)
  t.match(await buckets.composition('n1', 'm1'), { fp: fp('b'), config: { port: 1 } })
  t.equal(gateway.logged(/key settings m1/).length, 1, 'one take-in')
})

t.test('a bucket that was deleted and made again is read anew; while one is missing nothing is made or taken in', async (t) => {
  const on = await stage(t, { env: auto })
  const { buckets, nc, gateway, spy } = on
  await buckets.ready('m1', 'a', ['n1'])
  await eventually('m1 is taken in', () => isTakenIn(buckets, 'm1', 'a'))
  await buckets.done('m1', 'b')

  // Gone and back in a moment: nobody saw it missing, and its first value counts.
  await buckets.jsm.streams.delete('KV_mesh_trunk')
  const remade = await mesh(nc)
  await remade.trunk('m1', 'b')
  await eventually('the first value of the new bucket is taken in', () => isTakenIn(buckets, 'm1', 'b'), 15_000)

  // Missing for a while.
  await buckets.jsm.streams.delete('KV_mesh_compositions')
  const notReady = await eventually('the gateway is not ready', async () => {
    const answer = await http(gateway.opsPort, 'GET', '/readyz')
    return answer.status === 503 && answer
  }, 15_000)
  t.match(notReady.json, { ready: false, buckets: false, missing: ['compositions'] })
  const from = spy.writes.length
  t.match(await post(on, 'm1'), { status: 503, headers: { 'retry-after': /^\d+$/ }, json: { type: 'urn:mesh-gateway:problem:unavailable', detail: /mesh_compositions\. Restore/ } })
  await buckets.put('settings', 'm1', { port: 7 })
  const written = () => spy.writes.slice(from).map(({ bucket }) => bucket)
  await eventually('the setting is written', () => written().includes('settings'))
  // A run that the bucket was taken from may still leave its record.
  t.same(written().filter((bucket) => bucket !== 'takeins'), ['settings'], 'nothing is composed')
  await t.rejects(buckets.jsm.streams.info('KV_mesh_compositions'), /not found/)
  await mesh(nc)
  await gateway.ready(15_000)
  const back = await eventually('what was lost is composed again, with what was set meanwhile', () => buckets.composition('n1', 'm1'), 15_000)
  t.match(back, { fp: fp('b'), config: { port: 7 } })
})

t.test('what take-ins wrote is put back from an older copy, or emptied, in a moment: everything is composed again', async (t) => {
  const { nc, buckets, gateway } = await stage(t, { env: auto })
  const stands = async () => JSON.stringify([
    (await buckets.composition('n1', 'm1'))?.config, (await buckets.composition('n1', 'm2'))?.fp, await buckets.composition('n2', 'm2') && 'on n2', await buckets.users('n3', 'bus')
  ])
  await buckets.holder('bus', 'n3')
  for (const module of ['m1', 'm2']) await buckets.ready(module, 'a', ['n1', 'n2'])
  for (const module of ['bus', 'm1', 'm2']) await eventually(`${module} is taken in`, () => isTakenIn(buckets, module, 'a'), 10_000)
  const copy = await copyOf(nc, 'KV_mesh_compositions')
  await buckets.put('settings', 'm1', { port: 1 })
  await buckets.assign('m2', ['n1'])
  await buckets.done('m2', 'b')
  await buckets.trunk('m2', 'b')
  await eventually('m2 moved', () => isTakenIn(buckets, 'm2', 'b'))
  await eventually('m1 has its setting', async () => (await buckets.composition('n1', 'm1'))?.config.port === 1)
  await eventually('m2 left n2', async () => (await buckets.users('n3', 'bus'))?.filter(({ module }) => module === 'm2').length === 1)
  const before = await stands()

  gateway.log.length = 0
  await putBack(nc, copy)
  t.not(await stands(), before, 'an older copy')
  await eventually('the older copy is repaired', async () => await stands() === before, 15_000)
  t.match(gateway.logged(/not the one that it was/), [{ buckets: ['compositions'] }])

  await buckets.jsm.streams.purge('KV_mesh_compositions')
  await eventually('what was emptied is composed again', async () => JSON.parse(await stands())[3]?.length === 4, 15_000)
  t.match(await buckets.composition('n1', 'm1'), { config: { port: 1 } })
  t.match(await buckets.composition('n1', 'm2'), { fp: fp('b') })
})

t.test('a gateway that is told to end while the bus is away leaves the run it cannot finish, and ends well', async (t) => {
  const { server, buckets, gateway } = await stage(t, { env: { ...auto, DRAIN_MS: '4000' } })
  // Nobody answers for the server of the seat, so the run waits.
  await buckets.holder('bus', 'n3', ['s1'])
  await buckets.ready('m1', 'a', ['n1'])
  await eventually('the run is where it asks the agent', async () => (await buckets.users('n3', 'bus'))?.some(({ module }) => module === 'm1'))
  await server.kill()
  await eventually('the gateway knows', () => gateway.logged(/the bus is away/).length > 0)
  await gateway.stop(6000)
  t.equal(gateway.process.exitCode, 0)
})
