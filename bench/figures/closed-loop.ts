/** How what a GET costs is measured: closed loop, one server process at a time, by CPU time and by rate. */
import type { GetLoadCommands } from '../actors/get-load.js'
import type { Measured } from '../bars.js'
import { Actor, cpuTime } from '../child.js'
import type { Stage } from '../stage.js'
import { median } from '../statistics.js'
import { number, ratio } from './rounds.js'

const connections = 32
const warmRequests = 30_000
const warmTurns = 6

export interface Target { port: number, pid: number, request: string, status: number }
/** CPU times are µs a request, the share is of one core. */
export interface Round { perSecond: number, cpu: number, user: number, share: number }
export interface Servers<N extends string> { targets: Record<N, Target>, end: () => Promise<void> }

/** New server processes for each round: two that run the same code differ by a tenth and more, as their compilers happened to decide. */
export async function inRounds<N extends string> (stage: Stage, servers: () => Promise<Servers<N>>): Promise<Record<N, Round[]>> {
  const load = await Actor.start<GetLoadCommands>('get-load')
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
  const results: Partial<Record<N, Round[]>> = {}
  for (let n = 0; n < (stage.quick ? 1 : 5); n++) {
    const { targets, end } = await servers()
    for (const name of Object.keys(targets) as N[]) (results[name] ??= []).push(await round(targets[name]))
    await end()
  }
  await load.end()
  return results as Record<N, Round[]>
}

const said = (rounds: Round[]): string => {
  const of = (member: keyof Round, digits: number): string => number(median(rounds.map((round) => round[member])), digits)
  return `${of('cpu', 1)} µs CPU a GET (${of('user', 1)} of them user), ${of('perSecond', 0)}/s`
}

/**
 * How many GETs a server answers with the same CPU time, against the yardstick. While the server has a core to itself GETs a second
 * say the same; where it has not, a rate says as much of the generator and of whatever else runs, and flatters the slower one.
 */
export function compared (bar: Measured['bar'], ours: Round[], yardstick: Round[]): Measured & { note: string } {
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
