/** A bus, a described mesh on it, a record of all that its buckets take, and gateways that come and go. */
import type { NatsConnection } from 'nats'
import { applyMesh } from '../../../src/dev/apply.js'
import { BadMeshFile } from '../../../src/dev/mesh-file.js'
import { NatsStore } from '../../../src/nats/buckets.js'
import type { MeshDescription } from '../../../src/schemas/mesh-description.js'
import { mesh, type Mesh } from '../bus/buckets.js'
import { client } from '../bus/client.js'
import { natsServer, type NatsServer } from '../bus/nats-server.js'
import { startGateway, type Gateway } from '../gateway.js'
import { temporaryFolder } from '../machine.js'
import type { Owner } from '../owner.js'
import { keys, post } from '../take-in.js'
import { until } from '../until.js'
import { differences, standing } from './judge.js'
import { record, type Recording } from './record.js'

export type Ends = ReturnType<typeof standing>

export class World {
  readonly #folder: string

  constructor (
    private readonly t: Owner, readonly server: NatsServer, readonly nc: NatsConnection, readonly buckets: Mesh, readonly recording: Recording
  ) {
    this.#folder = temporaryFolder(t, 'mesh')
  }

  /** Writes what builder, indexer and operators would. */
  async apply (description: MeshDescription): Promise<void> {
    const errorAt = (path: unknown[], why: string): BadMeshFile => new BadMeshFile(`${path.join('.')} ${why}`)
    await applyMesh(new NatsStore(this.nc, 'mesh_'), { mesh: description, errorAt }, this.#folder)
  }

  gateway (takeIn: 'auto' | 'manual' = 'auto'): Promise<Gateway> {
    return startGateway(this.t, { natsUrl: this.server.url, ready: true, env: { TAKE_IN: takeIn, LOG_LEVEL: 'warn' }, keys })
  }

  /** What stands. */
  async ends (): Promise<Ends> { return standing(await this.recording.caughtUp()) }

  /** Waits until what stands is what should; answers what differs still. */
  async becomes (ends: Ends, ms: number): Promise<string[]> {
    let differ: string[] = []
    await until(async () => {
      differ = differences(await this.ends(), ends)
      return differ.length === 0
    }, ms, 50)
    return differ
  }
}

export async function world (t: Owner): Promise<World> {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const buckets = await mesh(nc)
  return new World(t, server, nc, buckets, await record(t, nc, buckets))
}

/** What each description comes to where one gateway takes in one module after the other, and nobody disturbs it. */
export async function quietly (t: Owner, descriptions: readonly MeshDescription[]): Promise<Ends[]> {
  const quiet = await world(t)
  const ends: Ends[] = []
  let gateway: Gateway | undefined
  for (const description of descriptions) {
    await quiet.apply(description)
    gateway ??= await quiet.gateway('manual')
    for (const module of Object.keys(description.modules ?? {}).sort()) {
      const { status, body } = await post({ gateway }, module)
      if (status !== 200) throw new Error(`the quiet take-in of ${module} ended with ${status}: ${body.slice(0, 300)}`)
    }
    ends.push(await quiet.ends())
  }
  await gateway?.stop()
  await quiet.nc.close()
  await quiet.server.kill()
  return ends
}
