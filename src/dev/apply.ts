/**
 * Writes a mesh description to the buckets as builder, indexer and operators would. Only what differs is written; what a
 * take-in registered, composed or granted is left alone, and nothing is deleted (DESIGN section 9).
 */
import { createHash } from 'node:crypto'
import { access } from 'node:fs/promises'
import { canonical, readDocument } from '../core/documents.js'
import { Conflict, Transient } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { fingerprintPrefix, isFingerprint, quoted, short } from '../core/names.js'
import type { BucketName, Entry, Store } from '../core/ports.js'
import { NodeSchema } from '../schemas/inventory.js'
import type { Manifest } from '../schemas/manifest.js'
import type { DescribedModule } from '../schemas/mesh-description.js'
import type { MeshFile } from './mesh-file.js'
import { curveFile, nodeCurve } from './seeds.js'

export interface Wrote { bucket: BucketName, key: string }

/** The fingerprint of a build that names none: one that moves exactly when its manifest does. */
export const fingerprintOf = (manifest: Manifest): string => fingerprintPrefix + createHash('sha256').update(canonical(manifest)).digest('hex')

const standsEqual = (entry: Entry, document: unknown): boolean => {
  try {
    return !entry.deleted && canonical(JSON.parse(entry.text)) === canonical(document)
  } catch {
    return false
  }
}

class Applying {
  readonly wrote: Wrote[] = []

  constructor (private readonly store: Store) {}

  /** Writes a document where another, or none, stands. With `onlyNew`, where none does. */
  async put (bucket: BucketName, key: string, document: unknown, { onlyNew = false } = {}): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        const stands = await this.store.read(bucket, key)
        if (stands && (standsEqual(stands, document) || (onlyNew && !stands.deleted))) return
        await this.store.write(bucket, key, canonical(document), stands?.revision ?? 0)
        this.wrote.push({ bucket, key })
        return
      } catch (error) {
        // Somebody else writes the same key, or the bus was away for a moment: what stands is looked at again.
        if (!(error instanceof Conflict || error instanceof Transient) || tries >= limits.transientTries) throw error
      }
    }
  }
}

/** The key that a node's credentials are sealed to: described, or the one whose seed is here, or the one that stands, or a new one. */
async function curveOf (store: Store, dataDir: string, node: string, described: string | undefined): Promise<string> {
  if (described !== undefined) return described
  const stands = await store.read('inventory', `node.${node}`)
  const seedIsHere = await access(curveFile(dataDir, node)).then(() => true, () => false)
  // A node whose seed is elsewhere must not get a key that it does not have.
  if (stands && !stands.deleted && !seedIsHere) return readDocument('inventory', stands, NodeSchema).curve
  return (await nodeCurve(dataDir, node)).getPublicKey()
}

/** A name that is neither described nor on the bus is a slip of the pen: said with its line, before anything is written. */
async function checkNames (store: Store, { mesh, errorAt }: MeshFile): Promise<void> {
  const check = async (kind: 'node' | 'module', name: string, path: Array<string | number>) => {
    if (Object.hasOwn((kind === 'node' ? mesh.nodes : mesh.modules) ?? {}, name)) return
    const stands = await store.read('inventory', `${kind}.${name}`)
    if (!stands || stands.deleted) throw errorAt(path, `names the ${kind} ${quoted(name)}, which is neither here under ${kind}s nor on the bus`)
  }
  const { seat, modules = {} } = mesh
  if (seat) {
    await check('module', seat.module, ['seat', 'module'])
    await check('node', seat.node, ['seat', 'node'])
  }
  for (const [module, { nodes = [], bindings = {} }] of Object.entries(modules)) {
    for (const [i, node] of nodes.entries()) await check('node', node, ['modules', module, 'nodes', i])
    for (const [key, { module: offerer }] of Object.entries(bindings)) await check('module', offerer, ['modules', module, 'bindings', key, 'module'])
  }
}

async function putModule (applying: Applying, module: string, described: DescribedModule): Promise<void> {
  const { build, bindings, settings, nodes } = described
  let { trunk } = described
  if (build) {
    const manifest: Manifest = { ...build.manifest, module }
    const fp = build.fp ?? fingerprintOf(manifest)
    await applying.put('builds', `done.${module}.${fp}`, { fp, commit: build.commit, manifest })
    trunk ??= { fp, commit: build.commit }
  }
  if (settings) await applying.put('settings', module, settings)
  if (bindings) await applying.put('inventory', `binding.${module}`, bindings)
  if (nodes) await applying.put('inventory', `assignment.${module}`, { nodes })
  if (trunk) await applying.put('trunk', module, trunk)
}

/**
 * Applies a description; answers what was written, in order. Rejects with BadMeshFile before anything is written where a
 * name is unknown. The seeds of nodes that name no curve key are kept in the data folder.
 */
export async function applyMesh (store: Store, file: MeshFile, dataDir: string): Promise<Wrote[]> {
  const { nodes = {}, seat, modules = {} } = file.mesh
  await checkNames(store, file)
  const applying = new Applying(store)
  for (const [node, { curve }] of Object.entries(nodes)) {
    await applying.put('inventory', `node.${node}`, { node, curve: await curveOf(store, dataDir, node, curve) })
  }
  for (const [module, described] of Object.entries(modules)) await putModule(applying, module, described)
  // A take-in begins with whether the module is held: so all that it needs stands when it is.
  for (const module of Object.keys(modules)) await applying.put('inventory', `module.${module}`, { module }, { onlyNew: true })
  if (seat) await applying.put('inventory', 'seat.broker', seat)
  return applying.wrote
}

const inShort = (key: string): string => key.split('.').map((token) => isFingerprint(token) ? short(token) : token).join('.')

/** What was written, in a few lines. */
export function sayWrote (wrote: readonly Wrote[]): string[] {
  if (wrote.length === 0) return ['nothing to write: what the file names stands as described; what it does not name is left as it is']
  const buckets = [...new Set(wrote.map(({ bucket }) => bucket))]
  return buckets.map((bucket) => `wrote ${bucket}: ${wrote.filter((one) => one.bucket === bucket).map(({ key }) => inShort(key)).join(', ')}`)
}
