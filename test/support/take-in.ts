/** A bus with a gateway, nodes and a spy on the buckets: what a test of take-ins begins with. */
import type { NatsConnection } from 'nats'
import { stepNames } from '../../src/core/take-in/take.js'
import { mesh, type Mesh } from './bus/buckets.js'
import { client } from './bus/client.js'
import { natsServer, type NatsServer } from './bus/nats-server.js'
import { bucketSpy, type BucketSpy, type Write } from './bus/spy.js'
import { startGateway, type Gateway } from './gateway.js'
import type { Owner } from './owner.js'
import { http, type HttpResult } from './wire/http.js'
import { signers, svid } from './wire/signing.js'

/** Made once: an RSA key takes longer than most of what is tested. */
export const keys = signers()

export interface Stage { server: NatsServer, nc: NatsConnection, buckets: Mesh, spy: BucketSpy, gateway: Gateway }

interface StageOptions {
  env?: Record<string, string>
  nodes?: string[]
  /** The bus as the gateway reaches it, where that is another way than the test's. */
  natsUrl? (server: NatsServer): string | Promise<string>
}

/** A gateway that is ready, on a bus where the nodes stand and nothing else. */
export async function stage (t: Owner, { env, nodes = ['n1', 'n2', 'n3'], natsUrl = ({ url }) => url }: StageOptions = {}): Promise<Stage> {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const buckets = await mesh(nc)
  for (const node of nodes) await buckets.node(node)
  const spy = await bucketSpy(t, nc)
  const gateway = await startGateway(t, { natsUrl: await natsUrl(server), ready: true, env, keys })
  return { server, nc, buckets, spy, gateway }
}

/** An operator's POST. A `body` is sent as JSON. */
export function post ({ gateway }: Pick<Stage, 'gateway'>, module: string, { body, who = 'operator/alice' }: { body?: object, who?: string | null } = {}): Promise<HttpResult> {
  return http(gateway.port, 'POST', `/modules/${module}/take-in`, {
    wait: 40_000,
    ...(who === null ? {} : { token: svid(gateway.keys.ed, who) }),
    ...(body === undefined ? {} : { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) })
  })
}

/** What the writes were, in a word each: `bucket key`, and what it was other than a value. */
export const written = (writes: Write[]): string[] => writes.map(({ bucket, key, op }) => `${bucket} ${key}${op === 'PUT' ? '' : ` ${op}`}`)

/** The names of the steps in an answer or a record. */
export const stepsIn = (of: { steps?: Array<{ step: string }> } | undefined): string[] => (of?.steps ?? []).map(({ step }) => step)

/** All steps, and all but some. */
export const allSteps: readonly string[] = stepNames
export const without = (...steps: string[]): string[] => allSteps.filter((step) => !steps.includes(step))

/** What the buckets took after so many writes, but the records. */
export const since = ({ spy }: Pick<Stage, 'spy'>, from: number): string[] => written(spy.writes.slice(from)).filter((line) => !line.startsWith('takeins'))
