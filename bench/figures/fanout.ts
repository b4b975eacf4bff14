/** What a change costs with thousands of watchers: until the last is told, and what GETs notice of it. */
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import type { GetLoadCommands } from '../actors/get-load.js'
import type { WatchersCommands } from '../actors/watchers.js'
import type { Measured } from '../bars.js'
import { Actor, cpuTime } from '../child.js'
import { getRequest, value, type Gateway, type Stage } from '../stage.js'
import { median, quantile } from '../statistics.js'
import { alternate, milliseconds, number, ratio } from './rounds.js'

const module = 'watcher'
const key = 'value'
const subject = 'bench.fanout'
const wanted = 5000

/** GETs a second beside the fan-outs, well below what saturates, and ms from one fan-out to the next. */
const perSecond = 500
const everyMs = 250

/** How many watchers the limit on open files lets one process have twice (gateway's and yardstick's), with some to spare. */
function watchersPossible (): number {
  const files = Number(/^Max open files\s+\d+\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? Infinity)
  return Math.min(wanted, Math.floor((files - 500) / 2))
}

let last = 0
const nextText = (): string => JSON.stringify({ ...value, change: String(++last).padStart(8, '0') })
/** What the gateway's frame looks like, so that NATS carries as many bytes. */
const likeFrame = (text: string): string =>
  `{"jsonrpc":"2.0","method":"mesh/provision.changed","params":{"kind":"config","key":"${key}","value":${text},"etag":"\\"0000000000000000000000\\""}}`

export async function fanout (stage: Stage): Promise<Measured[]> {
  const { provisioner, quick, options: { say } } = stage
  const count = quick ? Math.min(1000, watchersPossible()) : watchersPossible()
  if (!quick && count < wanted) say(`the limit on open files lets only ${count} of ${wanted} watchers be: raise it (ulimit -n 20000)`)
  await provisioner.call('set', { module, key, text: nextText() })
  const gateway = await stage.gateway()
  const watchers = await Actor.start<WatchersCommands>('watchers')
  const token = await stage.token({ role: 'module', name: module })
  const headers = { Authorization: `Bearer ${token}` }
  await watchers.call('open', {
    group: 'gateway',
    port: gateway.port,
    path: '/watch',
    headers,
    says: Array(count).fill(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'mesh/provision.watch', params: { kind: 'config', key } })),
    ready: '{"jsonrpc":"2.0","id":1,"result"',
    change: '{"jsonrpc":"2.0","method":"mesh/provision.changed"'
  })
  await watchers.call('open', {
    group: 'nats',
    port: stage.websocketPort,
    path: '/',
    headers: {},
    says: Array(count).fill(`CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1","protocol":1}\r\nSUB ${subject} 1\r\nPING\r\n`),
    ready: 'PONG',
    change: 'MSG'
  })

  /** One change: µs from when it is said to when the last watcher has it. */
  const timed = async (group: string, change: () => Promise<number>): Promise<number> => {
    await watchers.call('arm', group)
    const arrived = watchers.call('last', group)
    const [began, ended] = [await change(), await arrived]
    return ended - began
  }
  const ours = () => timed('gateway', () => provisioner.call('change', { module, key, text: nextText() }))
  const theirs = () => timed('nats', () => provisioner.call('publish', { subject, text: likeFrame(nextText()) }))
  const some = (change: () => Promise<number>, times: number) => async (): Promise<number[]> => {
    const samples: number[] = []
    for (let n = 0; n < times; n++) {
      samples.push(await change())
      await pause(20)
    }
    return samples
  }
  await some(ours, 10)()
  await some(theirs, 10)()
  const before = cpuTime(gateway.pid)
  const times = quick ? 10 : 50
  const samples = await alternate(quick ? 2 : 5, { ours: some(ours, times), theirs: some(theirs, times) })
  const { user, kernel } = cpuTime(gateway.pid, before)
  const cpu = (user + kernel) / samples.ours.flat().length

  const beside = await besideGets(stage, gateway, headers, ours)
  await Promise.all([gateway.stop(), watchers.end()])

  const at = (bar: Measured['bar'], share: number, note: string): Measured => {
    const of = (all: number[][]): number => quantile(all.flat(), share)
    const { range } = ratio(samples.ours.map((round) => quantile(round, share)), samples.theirs.map((round) => quantile(round, share)))
    return {
      bar,
      value: of(samples.ours) / of(samples.theirs),
      range,
      ours: milliseconds(of(samples.ours)),
      yardstick: milliseconds(of(samples.theirs)),
      note
    }
  }
  return [
    at('fanoutMedian', 0.5, `${number(count)} watchers, ${samples.ours.flat().length} changes each; ${number(cpu / count, 1)} µs CPU a watcher told`),
    at('fanoutTail', 0.99, `${number(count)} watchers, ${samples.ours.flat().length} changes each`),
    beside
  ]
}

/** GETs at a fixed rate, on a quiet gateway and beside fan-outs. */
async function besideGets (stage: Stage, gateway: Gateway, headers: Record<string, string>, change: () => Promise<number>): Promise<Measured> {
  const load = await Actor.start<GetLoadCommands>('get-load')
  const ms = stage.quick ? 1500 : 5000
  const gets = () => load.call('openLoop', {
    port: gateway.port, request: getRequest(`/provision/config/${key}`, headers), status: 200, perSecond, ms
  })
  const busy = async () => {
    const until = new AbortController()
    const changing = (async () => {
      while (!until.signal.aborted) await Promise.all([change(), pause(everyMs)])
    })()
    try {
      return await gets()
    } finally {
      until.abort()
      await changing
    }
  }
  await gets()
  const samples = await alternate(stage.quick ? 1 : 3, { quiet: gets, busy })
  await load.end()
  const p99 = ({ latencies }: { latencies: number[] }): number => quantile(latencies, 0.99)
  const late = (all: Array<{ late: number[] }>): string => milliseconds(quantile(all.flatMap(({ late }) => late), 0.99))
  return {
    bar: 'getInFanout',
    ...ratio(samples.busy.map(p99), samples.quiet.map(p99)),
    ours: milliseconds(median(samples.busy.map(p99))),
    yardstick: milliseconds(median(samples.quiet.map(p99))),
    note: `${perSecond} GETs a second, ${1000 / everyMs} fan-outs a second; p99 of how late the generator sent: ${late(samples.busy)}, quiet ${late(samples.quiet)}`
  }
}
