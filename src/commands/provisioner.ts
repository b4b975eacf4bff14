import { startProvisioner } from '../agents/provisioner.js'
import { loadConfig, requireVariables } from '../config.js'
import { runAgent } from './agent.js'
import type { Command } from './command.js'

export const command: Command = {
  async run () {
    const config = loadConfig(process.env)
    requireVariables(config, ['MESH_NODE'])
    const { MESH_NODE: node = '', MESH_PREFIX: prefix } = config
    await runAgent(config, { part: 'provisioner', node }, (nc, log) => startProvisioner(nc, { node, prefix, log }))
  }
}
