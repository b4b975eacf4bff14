/** What a GET costs: from the view, not modified, and past the view. Closed loop, one server process at a time. */
import type { GetLoadCommands } from '../actors/get-load.js'
import type { YardstickCommands } from '../actors/yardstick.js'
import type { Measured } from '../bars.js'
import { Actor, cpuTime } from '../child.js'
import { getRequest, node, value, type Stage } from '../stage.js'
import { median } from '../statistics.js'
import { number, ratio } from './rounds.js'

const module = 'reader'
const key = 'value'
const path = `/provision/config/${key}`
const connections = 32
const warmRequests = 30_000
const warmTurns = 6

interface Target { port: number, pid: number, request: string, status: number }
/** CPU times are µs a request, the share is of one core. */
interface Round { perSecond: number, cpu: number, user: number, share: number }

async function etagOf (port: number, authorization: string): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization } })
  await response.arrayBuffer()
  const etag = response.headers.get('etag')
  if (response.status !== 200 || etag === null) throw new Error(`the first GET was answered with ${response.status}`)
  return etag
}

/** A new server process for each round: two that run the same code differ by a tenth and more, as their compilers happened to decide. */
export async function get (stage: Stage): Promise<Measured[]> {
  const load = await Actor.start<GetLoadCommands>('get-load')
  await stage.provisioner.call('set', { module, key, text: JSON.stringify(value) })
  const measure = async ({ pid, ...target }: Target, ms: number): Promise<Round & { requests: number }> => {
    const before = cpuTime(pid)
    const { requests, seconds } = await load.call('closed', { ...target, connections, ms })
    const { user, kernel } = cpuTime(pid, before)
    return {
      requests, perSecond: requests / seconds, cpu: (user + kernel) / requests, user: user / requests, share: (user + kernel) / seconds / 1e6
    }
  }
  /** Measures once the compiler has seen it all, which takes requests, not time. */
  const round = async (target: Target): Promise<Round> => {
    for (let seen = 0, turns = 0; seen < warmRequests && turns < warmTurns; turns++) seen += (await measure(target, 500)).requests
    return measure(target, stage.quick ? 700 : 2000)
  }
  const results: Record<keyof Targets, Round[]> = { get: [], bare: [], notModified: [], noCache: [], bus: [] }
  for (let n = 0; n < (stage.quick ? 1 : 5); n++) {
    const { targets, end } = await servers(stage)
    for (const name of Object.keys(results) as Array<keyof Targets>) results[name].push(await round(targets[name]))
    await end()
  }
  await load.end()
  return [
    compared('get', results.get, results.bare),
    compared('notModified', results.notModified, results.get),
    compared('noCache', results.noCache, results.bus)
  ]
}

interface Targets { get: Target, bare: Target, notModified: Target, noCache: Target, bus: Target }

async function servers (stage: Stage): Promise<{ targets: Targets, end: () => Promise<void> }> {
  const [gateway, bare, bus] = await Promise.all([
    stage.gateway(), Actor.start<YardstickCommands>('yardstick'), Actor.start<YardstickCommands>('yardstick')
  ])
  const given = { url: stage.url, subject: `mesh.provision.${node}.${module}.get`, value }
  const [barePort, busPort] = await Promise.all([bare.call('listen', { kind: 'bare', ...given }), bus.call('listen', { kind: 'bus', ...given })])
  const authorization = `Bearer ${await stage.token({ role: 'module', name: module })}`
  const etag = await etagOf(gateway.port, authorization)
  // The yardsticks get the same headers: reading them is the request's cost, not the gateway's.
  const ours = (status: number, headers: Record<string, string> = {}): Target =>
    ({ port: gateway.port, pid: gateway.pid, request: getRequest(path, { Authorization: authorization, ...headers }), status })
  const theirs = ({ pid }: { pid: number }, port: number, of: string): Target =>
    ({ port, pid, request: getRequest(of, { Authorization: authorization }), status: 200 })
  return {
    targets: {
      get: ours(200),
      bare: theirs(bare, barePort, '/bare'),
      notModified: ours(304, { 'If-None-Match': etag }),
      noCache: ours(200, { 'Cache-Control': 'no-cache' }),
      bus: theirs(bus, busPort, '/bus')
    },
    end: async () => { await Promise.all([gateway.stop(), bare.end(), bus.end()]) }
  }
}

const said = (rounds: Round[]): string => {
  const of = (member: keyof Round, digits: number): string => number(median(rounds.map((round) => round[member])), digits)
  return `${of('cpu', 1)} µs CPU a GET (${of('user', 1)} of them user), ${of('perSecond', 0)}/s`
}

/**
 * How many GETs a server answers with the same CPU time, against the yardstick. While the server has a core to itself GETs a second
 * say the same; where it has not, a rate says as much of the generator and of whatever else runs, and flatters the slower one.
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
