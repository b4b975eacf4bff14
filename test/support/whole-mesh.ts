/** A mesh of one node with every part as the process that runs in production, each with a user of its own and the rights of its role. */
import type { ChildProcess } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { nkeyAuthenticator, type NatsConnection } from 'nats'
import { writeBusFiles } from '../../src/dev/bus-server.js'
import { giveUsers } from '../../src/dev/bus-users.js'
import { findNatsServer } from '../../src/dev/nats-binary.js'
import { provisionerSeedFile, seedFile } from '../../src/dev/seeds.js'
import { mesh, type Mesh } from './bus/buckets.js'
import { client } from './bus/client.js'
import { assertBuilt, startGateway, type Gateway } from './gateway.js'
import { end, freePort, HOST, projectRoot, start, temporaryFolder } from './machine.js'
import type { Owner } from './owner.js'
import { eventually } from './until.js'

export interface WholeMesh {
  dataDir: string
  natsUrl: string
  /** The connection of the user that may do all, and its buckets. */
  nc: NatsConnection
  buckets: Mesh
  gateway: Gateway
  running: Record<'bus' | 'agent' | 'provisioner', ChildProcess>
  /** The lines of the nats-server's log that say that somebody was refused something. */
  refusals (): string[]
  restartBus (): Promise<void>
  startProvisioner (): void
}

/** A fresh data folder, and on it: dev's nats-server with its users, the agent beside it (s1), node-a's provisioner and gateway. */
export async function wholeMesh (t: Owner): Promise<WholeMesh> {
  assertBuilt()
  const dataDir = temporaryFolder(t, 'whole')
  const program = findNatsServer() ?? ''
  const { broker, port } = await writeBusFiles(dataDir, { program, port: await freePort(), monitorPort: await freePort() })
  const natsUrl = `nats://${HOST}:${port}`
  const reach = (seed: string) => ({ NATS_URL: natsUrl, NATS_NKEY_SEED_FILE: seed, DATA_DIR: dataDir })
  const { PATH, HOME } = process.env
  const part = (command: string, env: Record<string, string>) =>
    start(t, process.execPath, ['dist/src/cli.js', command], { cwd: projectRoot, env: { PATH, HOME, LOG_LEVEL: 'fatal', ...env }, stdio: ['ignore', 'ignore', 'inherit'] })

  let log = ''
  const startBus = () => {
    const bus = start(t, program, ['-c', broker.BROKER_CONFIG], { stdio: ['ignore', 'ignore', 'pipe'] })
    bus.stderr?.on('data', (data: Buffer) => { log += data.toString() })
    return bus
  }
  const bus = startBus()
  const nc = await client(t, natsUrl, {
    authenticator: nkeyAuthenticator(Buffer.from(readFileSync(seedFile(dataDir, 'operator'), 'utf8').trim())), waitOnFirstConnect: true
  })
  await giveUsers(dataDir, broker, { prefix: 'mesh_', node: 'node-a', nodes: ['node-a'], server: 's1' })
  const startProvisioner = () => part('provisioner', { ...reach(provisionerSeedFile(dataDir, 'node-a')), MESH_NODE: 'node-a' })
  const running: WholeMesh['running'] = {
    bus,
    agent: part('broker', { ...reach(seedFile(dataDir, 'broker')), ...broker, BROKER_SERVER: 's1' }),
    provisioner: startProvisioner()
  }
  const gateway = await startGateway(t, { natsUrl, ready: true, env: { TAKE_IN: 'auto', ...reach(seedFile(dataDir, 'gateway')) } })
  const buckets = await eventually('the buckets', () => mesh(nc, { create: false }).catch(() => undefined))
  return {
    dataDir,
    natsUrl,
    nc,
    buckets,
    gateway,
    running,
    refusals: () => log.split('\n').filter((line) => /violation/i.test(line)),
    async restartBus () {
      await end(running.bus)
      running.bus = startBus()
    },
    startProvisioner () { running.provisioner = startProvisioner() }
  }
}
