import { loadBrokerConfig } from '../agents/broker-config.js'
import { startBroker } from '../agents/broker.js'
import { UsersFile } from '../agents/users-file.js'
import { loadConfig } from '../config.js'
import { runAgent } from './agent.js'
import type { Command } from './command.js'

export const command: Command = {
  async run () {
    const config = loadConfig(process.env)
    const broker = loadBrokerConfig(process.env)
    await new UsersFile(broker).writeFirst()
    await runAgent(config, { part: 'broker', server: broker.BROKER_SERVER }, (nc, log) => startBroker(nc, { prefix: config.MESH_PREFIX, config: broker, log }))
  }
}
