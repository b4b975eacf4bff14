/** What stands behind the rows: two modules on node-a, a bus, and a provisioner that answers their values. */
import type { NatsConnection } from 'nats'
import { mesh, type Mesh } from './bus/buckets.js'
import { client } from './bus/client.js'
import { natsServer, type NatsServer } from './bus/nats-server.js'
import { provisioner, type StandInProvisioner } from './bus/provisioner.js'
import { startGateway, type Gateway, type GatewayOptions } from './gateway.js'
import type { Owner } from './owner.js'

// One code point for the last letter; the form of two is another key.
const nfc = 'caf\u00e9'

/** The values of m1 and m2. */
export const FIXTURE: Record<string, { config: Record<string, unknown>, bound: Record<string, unknown> }> = {
  m1: {
    config: {
      port: 8080,
      '..': 'up',
      'a/b': 'slash',
      'a/b c': 'slash and space',
      '%2F': 'percent',
      [nfc]: 'nfc',
      ['k'.repeat(256)]: 'longest'
    },
    bound: { db: 'postgres://db.mesh/app' }
  },
  m2: { config: { port: 9090 }, bound: {} }
}

export interface Fixture { server: NatsServer, nc: NatsConnection, mesh: Mesh, prov: StandInProvisioner }

/** A bus on which m1 and m2 are held, built at `fp('a')` and assigned to node-a, and a stand-in provisioner for it. */
export async function fixture (t: Owner): Promise<Fixture> {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const buckets = await mesh(nc)
  const prov = await provisioner(t, nc)
  await buckets.node('node-a')
  for (const [module, kinds] of Object.entries(FIXTURE)) {
    await buckets.ready(module)
    for (const [kind, values] of Object.entries(kinds)) {
      for (const [key, value] of Object.entries(values)) prov.set(`${module}/${kind}/${key}`, { value })
    }
  }
  return { server, nc, mesh: buckets, prov }
}

/** The fixture with a gateway that is ready. */
export async function gatewayOnFixture (t: Owner, options: Partial<GatewayOptions> = {}): Promise<Fixture & { gateway: Gateway }> {
  const made = await fixture(t)
  return { ...made, gateway: await startGateway(t, { natsUrl: made.server.url, ready: true, ...options }) }
}
