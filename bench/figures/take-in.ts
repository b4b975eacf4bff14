/** What a take-in costs, against what one write to a bucket costs: a compare-and-set update as the NATS client library has it. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { Agent, request, type IncomingMessage } from 'node:http'
import { connect } from 'nats'
import { createCurve } from 'nkeys.js'
import type { Measured } from '../bars.js'
import { NatsStore } from '../../src/nats/buckets.js'
import type { BucketName } from '../../src/core/ports.js'
import { microseconds } from '../clock.js'
import type { Stage } from '../stage.js'
import { median, quantile } from '../statistics.js'
import { milliseconds } from './rounds.js'

const module = 'billing'
const bus = 'bus'
const prefix = 'mesh_'
const nodes = ['node-a', 'node-b']

export async function takeIn (stage: Stage): Promise<Measured[]> {
  const gateway = await stage.gateway()
  const nc = await connect({ servers: stage.url })
  const store = new NatsStore(nc, prefix)
  const revisions = new Map<string, number>()
  const put = async (bucket: BucketName, key: string, document: object): Promise<void> => {
    const id = `${bucket} ${key}`
    revisions.set(id, await store.write(bucket, key, JSON.stringify(document), revisions.get(id) ?? 0))
  }
  const build = async (of: string, manifest: object, number: number): Promise<void> => {
    const digest = createHash('sha256').update(`${of} ${number}`).digest('hex')
    const [fp, commit] = [`fp2-${digest}`, digest.slice(0, 16)]
    await put('builds', `done.${of}.${fp}`, { fp, commit, manifest: { module: of, ...manifest } })
    await put('trunk', of, { fp, commit })
  }
  const token = await stage.token({ role: 'operator', name: 'bench' })
  // Not fetch, which costs a millisecond of its own.
  const agent = new Agent({ keepAlive: true })
  const post = async (of: string): Promise<number> => {
    const began = microseconds()
    const asked = request({ agent, host: '127.0.0.1', port: gateway.port, method: 'POST', path: `/modules/${of}/take-in`, headers: { authorization: `Bearer ${token}` } })
    asked.end()
    const [response] = await once(asked, 'response') as [IncomingMessage]
    const text = Buffer.concat(await response.toArray() as Buffer[]).toString()
    const took = microseconds() - began
    if (!text.includes('"outcome":"taken-in"')) throw new Error(`the take-in of ${of} ended with ${response.statusCode}, ${text.slice(0, 300)}`)
    return took
  }

  for (const node of nodes) await put('inventory', `node.${node}`, { node, curve: createCurve().getPublicKey() })
  await put('inventory', 'seat.broker', { module: bus, node: nodes[1], servers: [] })
  await put('inventory', `assignment.${bus}`, { nodes: [nodes[1]] })
  await put('inventory', `assignment.${module}`, { nodes })
  for (const of of [bus, module]) await put('inventory', `module.${of}`, { module: of })
  await build(bus, {}, 0)
  await post(bus)

  const manifest = { config: { port: { default: 8080 }, currency: { default: 'EUR' } }, permissions: { publish: ['billing.>'] } }
  const kv = await nc.jetstream().views.kv(`${prefix}settings`, { bindOnly: true })
  let revision = await kv.create('yardstick', '{}')
  const writes: number[] = []
  const runs: number[] = []
  const count = stage.quick ? 20 : 100
  for (let n = 0; n < count; n++) {
    for (let i = 0; i < 5; i++) {
      const began = microseconds()
      revision = await kv.update('yardstick', JSON.stringify({ n, i }), revision)
      writes.push(microseconds() - began)
    }
    await build(module, manifest, n)
    runs.push(await post(module))
  }
  agent.destroy()
  await Promise.all([gateway.stop(), nc.close()])
  // The first ones are compiled while they run.
  const warm = <T>(samples: T[]): T[] => samples.slice(samples.length / 4)
  return [{
    bar: 'takeIn',
    value: median(warm(runs)) / median(warm(writes)),
    ours: `${milliseconds(median(warm(runs)))}, p99 ${milliseconds(quantile(warm(runs), 0.99))}`,
    yardstick: `${milliseconds(median(warm(writes)))}, p99 ${milliseconds(quantile(warm(writes), 0.99))}`,
    note: `${warm(runs).length} new builds, over HTTP, with a seat of the broker and no agents to ask`
  }]
}
