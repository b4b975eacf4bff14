/** The mesh that dev runs: what stands in its buckets, the sample at first. */
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { NatsConnection } from 'nats'
import { ConfigError, type Environment } from '../config.js'
import { readDocument } from '../core/documents.js'
import { limits } from '../core/limits.js'
import { ensureBuckets, NatsStore } from '../nats/buckets.js'
import { packageRoot } from '../package-info.js'
import { CompositionSchema } from '../schemas/composition.js'
import { AssignmentSchema, SeatSchema } from '../schemas/inventory.js'
import { applyMesh } from './apply.js'
import { readIfThere } from './kept.js'
import { readMeshFile } from './mesh-file.js'

export interface DevMesh { nodes: string[], server: string, fresh: boolean }

const standing = <T extends { deleted: boolean }>(entries: Map<string, T>): T[] => [...entries.values()].filter(({ deleted }) => !deleted)

/**
 * Makes the buckets, applies the sample where the data folder never had one, and answers the mesh's nodes and the server
 * that its seat names. The description that was applied is kept in the folder, to be changed and applied again.
 */
export async function prepareMesh (nc: NatsConnection, config: Environment, dataDir: string): Promise<DevMesh> {
  const missing = await ensureBuckets(nc, { prefix: config.MESH_PREFIX, replicas: config.KV_REPLICAS })
  if (missing.length > 0) throw new ConfigError(`DATA_DIR is ${dataDir}, but its bus lacks buckets (${missing.join(', ')}): delete the folder to begin anew`)
  const store = new NatsStore(nc, config.MESH_PREFIX)
  const kept = join(dataDir, 'mesh.yaml')
  const fresh = await readIfThere(kept) === undefined
  if (fresh) {
    const sample = join(packageRoot, 'examples', 'mesh.yaml')
    await applyMesh(store, await readMeshFile(sample), dataDir)
    // Last: one that was ended half-way begins again.
    await copyFile(sample, kept)
  }
  const nodes = standing(await store.readAll('inventory', 'node.*')).map(({ key }) => key.slice('node.'.length)).sort()
  const seat = await store.read('inventory', 'seat.broker')
  const { node = 'dev', servers = [node] } = seat && !seat.deleted ? readDocument('inventory', seat, SeatSchema) : {}
  return { nodes, server: servers[0] ?? node, fresh }
}

/** The modules whose composition on a node should come by itself: assigned to it, with a trunk value that is built. */
async function expected (store: NatsStore, node: string): Promise<string[]> {
  const [assignments, builds, trunks] = await Promise.all([
    store.readAll('inventory', 'assignment.*'), store.readAll('builds', 'done.*.*'), store.readAll('trunk', '*')
  ])
  return standing(assignments)
    .filter((entry) => readDocument('inventory', entry, AssignmentSchema).nodes.includes(node))
    .map(({ key }) => key.slice('assignment.'.length))
    .filter((module) => trunks.has(module) && [...builds.keys()].some((key) => key.startsWith(`done.${module}.`)))
}

/** A value that can be read on a node, once its modules are composed; undefined where there is none, or not in time. */
export async function readableValue (nc: NatsConnection, prefix: string, node: string): Promise<{ module: string, key: string } | undefined> {
  const store = new NatsStore(nc, prefix)
  const modules = await expected(store, node)
  const end = Date.now() + limits.devComposedMs
  for (;;) {
    const composed = standing(await store.readAll('compositions', `${node}.*`))
    const there = new Set(composed.map(({ key }) => key.slice(node.length + 1)))
    if (modules.every((module) => there.has(module)) || Date.now() > end) {
      for (const entry of composed.sort((a, b) => a.key < b.key ? -1 : 1)) {
        const { module, config } = readDocument('compositions', entry, CompositionSchema)
        const key = Object.keys(config).includes('port') ? 'port' : Object.keys(config)[0]
        if (key !== undefined) return { module, key }
      }
      return undefined
    }
    await pause(limits.devPollMs)
  }
}
