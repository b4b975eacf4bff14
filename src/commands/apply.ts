import { loadConfig } from '../config.js'
import { applyMesh, sayWrote } from '../dev/apply.js'
import { readMeshFile } from '../dev/mesh-file.js'
import { ensureBuckets, NatsStore } from '../nats/buckets.js'
import { onBus } from './bus.js'
import type { Command } from './command.js'

export const command: Command = {
  positionals: ['FILE'],
  async run ({ positionals: [file = ''] }) {
    const config = loadConfig(process.env)
    const mesh = await readMeshFile(file)
    const wrote = await onBus(config, 'apply', async (nc) => {
      const missing = await ensureBuckets(nc, { prefix: config.MESH_PREFIX, replicas: config.KV_REPLICAS })
      if (missing.length > 0) throw new Error(`buckets are missing though others stand (${missing.join(', ')}): restore them, or delete all to begin anew`)
      return applyMesh(new NatsStore(nc, config.MESH_PREFIX), mesh, config.DATA_DIR)
    })
    process.stdout.write(`${sayWrote(wrote).join('\n')}\n`)
  }
}
