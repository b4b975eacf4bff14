/** What a GET costs: from the view, not modified, and past the view. Closed loop, one server process at a time. */
import type { GetLoadCommands } from '../actors/get-load.js'
import type { YardstickCommands } from '../actors/yardstick.js'
import type { Measured } from '../bars.js'
import { Actor, cpuMicroseconds } from '../child.js'
import { getRequest, node, value, type Stage } from '../stage.js'
import { median } from '../statistics.js'
import { alternate, number, ratio } from './rounds.js'

const module = 'reader'
const key = 'value'
const path = `/provision/config/${key}`
const connections = 32

interface Target { port: number, pid: number, request: string, status: number }
interface Round { perSecond: number, cpu: number, share: number }

async function etagOf (port: number, authorization: string): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization } })
  await response.arrayBuffer()
  const etag = response.headers.get('etag')
  if (response.status !== 200 || etag === null) throw new Error(`the first GET was answered with ${response.status}`)
  return etag
}

export async function get (stage: Stage): Promise<Measured[]> {
  const { provisioner, quick } = stage
  await provisioner.call('set', { module, key, text: JSON.stringify(value) })
  const gateway = await stage.gateway()
  const load = await Actor.start<GetLoadCommands>('get-load')
  const [bare, bus] = await Promise.all([Actor.start<YardstickCommands>('yardstick'), Actor.start<YardstickCommands>('yardstick')])
  const yardstick = { url: stage.url, subject: `mesh.provision.${node}.${module}.get`, value }
  const [barePort, busPort] = await Promise.all([bare.call('listen', { kind: 'bare', ...yardstick }), bus.call('listen', { kind: 'bus', ...yardstick })])

  const authorization = `Bearer ${await stage.token({ role: 'module', name: module })}`
  const etag = await etagOf(gateway.port, authorization)
  // The yardsticks get the same headers: reading them is the request's cost, not the gateway's.
  const ours = (status: number, headers: Record<string, string> = {}): Target =>
    ({ port: gateway.port, pid: gateway.pid, request: getRequest(path, { Authorization: authorization, ...headers }), status })
  const theirs = ({ pid }: { pid: number }, port: number, of: string): Target =>
    ({ port, pid, request: getRequest(of, { Authorization: authorization }), status: 200 })

  const round = async ({ pid, ...target }: Target, ms = quick ? 700 : 3000): Promise<Round> => {
    const before = cpuMicroseconds(pid)
    const { requests, seconds } = await load.call('closed', { ...target, connections, ms })
    const spent = cpuMicroseconds(pid) - before
    return { perSecond: requests / seconds, cpu: spent / requests, share: spent / seconds / 1e6 }
  }
  const targets = {
    get: ours(200),
    bare: theirs(bare, barePort, '/bare'),
    notModified: ours(304, { 'If-None-Match': etag }),
    noCache: ours(200, { 'Cache-Control': 'no-cache' }),
    bus: theirs(bus, busPort, '/bus')
  }
  // Until the compiler has seen it all.
  for (const target of Object.values(targets)) await round(target, quick ? 500 : 2000)
  const rounds = quick ? 2 : 5
  const results = await alternate(rounds, {
    get: () => round(targets.get),
    bare: () => round(targets.bare),
    notModified: () => round(targets.notModified)
  })
  const asking = await alternate(rounds, { noCache: () => round(targets.noCache), bus: () => round(targets.bus) })

  await Promise.all([gateway.stop(), load.end(), bare.end(), bus.end()])
  return [
    compared('get', results.get, results.bare),
    compared('notModified', results.notModified, results.get),
    compared('noCache', asking.noCache, asking.bus)
  ]
}

const said = (rounds: Round[]): string =>
  `${number(median(rounds.map(({ cpu }) => cpu)), 1)} µs CPU a GET, ${number(median(rounds.map(({ perSecond }) => perSecond)))}/s`

/**
 * How many GETs a server answers with the same CPU time, against the yardstick. Not GETs a second: on two cores the generator
 * needs about as much as bare Fastify does, so a rate says as much of the generator as of the server, and flatters the slower one.
 */
function compared (bar: Measured['bar'], ours: Round[], yardstick: Round[]): Measured {
  const rate = ratio(ours.map(({ perSecond }) => perSecond), yardstick.map(({ perSecond }) => perSecond))
  const share = (of: Round[]): string => number(100 * median(of.map(({ share }) => share)))
  return {
    bar,
    ...ratio(yardstick.map(({ cpu }) => cpu), ours.map(({ cpu }) => cpu)),
    ours: said(ours),
    yardstick: said(yardstick),
    note: `by CPU time; by GETs a second ${number(rate.value, 2)}, with the servers at ${share(ours)} % and ${share(yardstick)} % of a core`
  }
}
