/** What a connection holds in memory, from the resident set of a fresh gateway: one that is idle, and one that never reads. */
import type { StreamsCommands } from '../actors/streams.js'
import type { WatchersCommands } from '../actors/watchers.js'
import type { BarName, Measured } from '../bars.js'
import { Actor, residentBytes, settledBytes } from '../child.js'
import { getRequest, value, type Gateway, type Stage } from '../stage.js'
import { slope } from '../statistics.js'
import { number } from './rounds.js'

const module = 'holder'
const mebibyte = 1024 * 1024

/** Watchers of the gateway, one for each key that is given. */
const opening = (gateway: Gateway, token: string, group: string, keys: string[]) => ({
  group,
  port: gateway.port,
  path: '/watch',
  headers: { Authorization: `Bearer ${token}` },
  says: keys.map((key) => JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'mesh/provision.watch', params: { kind: 'config', key } })),
  ready: '{"jsonrpc":"2.0","id":1,"result"',
  change: '{"jsonrpc":"2.0","method":"mesh/provision.changed"'
})

/** The slope of memory over connections: what the process holds without any drops out of it. */
async function perConnection (bar: BarName, gateway: Gateway, step: number, open: (count: number) => Promise<void>): Promise<Measured> {
  // The first thousands also make the collector's room for the young grow, once, to its full size: they are in the base.
  const base = 2 * step
  await open(base)
  const points: Array<[number, number]> = [[base, await settledBytes(gateway.pid)]]
  for (let n = 1; n <= 3; n++) {
    await open(step)
    points.push([base + n * step, await settledBytes(gateway.pid)])
  }
  const each = points.slice(1).map(([x, y], n) => (y - points[n]![1]) / (x - points[n]![0]) / 1024)
  return {
    bar,
    value: slope(points) / 1024,
    range: [Math.min(...each), Math.max(...each)],
    ours: `${points.map(([, y]) => number(y / mebibyte, 1)).join(', ')} MiB`,
    note: `with ${points.map(([x]) => number(x)).join(', ')} connections`
  }
}

/** A module that holds connections of one value, and a gateway that collects its garbage. */
async function holding (stage: Stage): Promise<{ key: string, token: string, gateway: Gateway }> {
  const key = 'value'
  await stage.provisioner.call('set', { module, key, text: JSON.stringify(value) })
  const token = await stage.token({ role: 'module', name: module })
  return { key, token, gateway: await stage.gateway({}, { collects: true }) }
}

export async function idle (stage: Stage): Promise<Measured[]> {
  const { key, token, gateway } = await holding(stage)
  const watchers = await Actor.start<WatchersCommands>('watchers')
  const measured = await perConnection('idleMemory', gateway, stage.quick ? 500 : 1500,
    (count) => watchers.call('open', opening(gateway, token, 'idle', Array(count).fill(key))))
  await Promise.all([gateway.stop(), watchers.end()])
  return [measured]
}

export async function idleStream (stage: Stage): Promise<Measured[]> {
  const { key, token, gateway } = await holding(stage)
  const streams = await Actor.start<StreamsCommands>('streams')
  const request = getRequest(`/provision/config/${key}`, { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' })
  const measured = await perConnection('idleStreamMemory', gateway, stage.quick ? 500 : 1000,
    (count) => streams.call('open', { port: gateway.port, request, count }))
  await Promise.all([gateway.stop(), streams.end()])
  return [measured]
}

const mutes = 8
const changes = 1000
const changeBytes = 64 * 1024
/** A client that reads nothing answers no ping, either: the first comes after 25 s, and 10 s later it is ended. */
const aliveS = 35

/** The growth while clients that never read sit beside the same changes, which clients that read had before. */
export async function mute (stage: Stage): Promise<Measured[]> {
  const { quick, provisioner } = stage
  const times = quick ? 200 : changes
  const keys = Array.from({ length: mutes }, (_, n) => `large-${n}`)
  for (const key of keys) await provisioner.call('set', { module, key, text: '""' })
  const token = await stage.token({ role: 'module', name: module })
  const gateway = await stage.gateway({
    // Held for longer than the default, which would close them and give the memory back.
    SLOW_CLIENT_MS: '3600000',
    // The C library gives back a freed frame at once: room that it kept from before would hide what the clients hold.
    MALLOC_MMAP_THRESHOLD_: '32768'
  }, { collects: true })
  const watchers = await Actor.start<WatchersCommands>('watchers')
  const change = (count: number) => provisioner.call('changeOften', { module, keys, times: count, bytes: changeBytes })
  // Clients that read, as many changes in two goes: what the changes themselves leave behind is in the base.
  await watchers.call('open', opening(gateway, token, 'reads', keys))
  await change(times / 2)
  await change(times / 2)
  const before = await settledBytes(gateway.pid)
  const opened = performance.now()
  await watchers.call('open', opening(gateway, token, 'mute', keys))
  await watchers.call('mute', 'mute')
  let peak = 0
  const looking = setInterval(() => { peak = Math.max(peak, residentBytes(gateway.pid)) }, 100)
  await change(times)
  clearInterval(looking)
  const after = await settledBytes(gateway.pid)
  const held = (performance.now() - opened) / 1000
  await Promise.all([gateway.stop(), watchers.end()])
  return [{
    bar: 'muteMemory',
    value: (after - before) / mutes / mebibyte,
    ours: `${number(before / mebibyte, 1)} MiB before, ${number(after / mebibyte, 1)} MiB with ${mutes} of them`,
    note: `${number(times)} changes of ${changeBytes / 1024} KB to each; ${number(peak / mebibyte, 1)} MiB at the highest meanwhile` +
      (held > aliveS ? `; not valid: it took ${number(held)} s, and a client that answers no ping is ended after ${aliveS}` : '')
  }]
}
