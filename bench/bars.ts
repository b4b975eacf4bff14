/** The figures that this project is held to: what each must reach, and what it aims at. A missed one is reported, never asserted. */

export interface Bar {
  title: string
  /** What it is measured against, in the same run. */
  yardstick: string
  better: 'higher' | 'lower'
  unit: '' | 'KB' | 'MiB'
  /** Undefined for a figure that is only looked at. */
  must: number | undefined
  goal: number | undefined
}

const bar = (title: string, yardstick: string, better: Bar['better'], must?: number, goal?: number, unit: Bar['unit'] = ''): Bar =>
  ({ title, yardstick, better, unit, must, goal })

export const bars = {
  get: bar('GET of a value in the view', 'bare Fastify, one JSON route', 'higher', 0.60, 0.80),
  notModified: bar('304', 'own 200', 'higher', 1.05, 1.15),
  noCache: bar('GET with `no-cache`', 'one `nc.request` a GET in Fastify', 'higher', 1.5, 2.0),
  etcd: bar('GET of a value in the view, beside etcd', "etcd's JSON gateway, `POST /v3/kv/range`", 'higher'),
  coldAsks: bar('asks for 200 concurrent GETs of 4 cold values', 'none: a count', 'lower', 4, 4),
  fanoutMedian: bar('change to the last watcher, p50', "NATS's own WebSocket listener, p50", 'lower', 1.15, 0.95),
  fanoutTail: bar('change to the last watcher, p99', "NATS's own WebSocket listener, p99", 'lower', 1.0, 0.80),
  getInFanout: bar('open-loop GET p99 during fan-outs', 'GET p99 when quiet', 'lower', 5, 2),
  idleMemory: bar('memory of an idle watching connection', 'none: an amount', 'lower', 14, 10, 'KB'),
  idleStreamMemory: bar('memory of an idle event stream', 'none: an amount', 'lower', undefined, undefined, 'KB'),
  muteMemory: bar('memory of a client that never reads', 'none: an amount', 'lower', 2, 1.2, 'MiB'),
  extraAsks: bar('a change heard while 64 asks are in flight: extra asks', 'none: a count', 'lower', 1, 1),
  takeIn: bar('take-in of one module on two nodes', 'one serial KV write', 'lower', 12)
} satisfies Record<string, Bar>

export type BarName = keyof typeof bars

/** What a run measured for a bar. */
export interface Measured {
  bar: BarName
  /** The figure that the bar judges: a ratio, a count or an amount. */
  value: number
  /** The lowest and highest of the rounds that it is the median of. */
  range?: [lowest: number, highest: number]
  /** The absolute values, with their units, so that a ratio cannot hide what it is a ratio of. */
  ours: string
  yardstick?: string
  /** What a reader should know to judge the figure. */
  note?: string
}

export type Verdict = 'goal' | 'must' | 'missed' | 'no bar'

export function judge ({ bar: name, value }: Measured): Verdict {
  const { better, must, goal }: Bar = bars[name]
  const reaches = (mark: number): boolean => better === 'higher' ? value >= mark : value <= mark
  if (must === undefined) return 'no bar'
  if (goal !== undefined && reaches(goal)) return 'goal'
  return reaches(must) ? 'must' : 'missed'
}
