/** Dev's own nats-server: its configuration, and the files that the broker agent beside it needs. */
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { BrokerEnvironment } from '../agents/broker-config.js'
import { confString } from '../agents/user-list.js'
import { writeFirstUsers } from './bus-users.js'

export interface BusServer {
  /** The nats-server program. */
  program: string
  port: number
  monitorPort: number
  /** All but the server's name, which the seat gives. */
  broker: Omit<BrokerEnvironment, 'BROKER_SERVER'>
}

/** Writes what the server needs into the data folder (an absolute path); what it stored stays, and so do the users of the run before. */
export async function writeBusFiles (dataDir: string, { program, port, monitorPort }: Omit<BusServer, 'broker'>): Promise<BusServer> {
  const folder = join(dataDir, 'bus')
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const broker = {
    BROKER_CONFIG: join(folder, 'server.conf'),
    BROKER_USERS: join(folder, 'users.conf'),
    BROKER_FIXED_USERS: join(folder, 'fixed-users.conf'),
    BROKER_PID_FILE: join(folder, 'nats.pid'),
    BROKER_MONITOR_URL: `http://127.0.0.1:${monitorPort}`,
    BROKER_NATS_SERVER: program
  }
  await writeFirstUsers(dataDir, broker)
  await writeFile(broker.BROKER_CONFIG, `# Written by dev at each start.
listen: "127.0.0.1:${port}"
server_name: dev
http: "127.0.0.1:${monitorPort}"
pid_file: ${confString(broker.BROKER_PID_FILE)}
logtime: false
jetstream { store_dir: ${confString(join(dataDir, 'nats'))} }
authorization {
  include "users.conf"
}
`)
  await chmod(broker.BROKER_CONFIG, 0o600)
  return { program, port, monitorPort, broker }
}
