/** The buckets as builder, indexer and operators write them, and as anybody reads them. */
import { createCurve, type KeyPair } from 'nkeys.js'
import type { JetStreamManager, KV, KvEntry, NatsConnection } from 'nats'
import { bucketNames, type BucketName } from '../../../src/core/ports.js'
import { formatRevision } from '../../../src/core/revision.js'
import type { BusUsers, Composition } from '../../../src/schemas/composition.js'
import type { Manifest } from '../../../src/schemas/manifest.js'
import { parsed } from '../wire/bytes.js'
import { decode, encode } from './client.js'

/** The fingerprint, or the commit, that is one hex digit all through. */
export const fp = (digit: string): string => `fp2-${digit.repeat(64)}`
export const commitOf = (digit: string): string => digit.repeat(40)

const history: Partial<Record<BucketName, number>> = { takeins: 64, inventory: 8, settings: 8, compositions: 8, grants: 8 }

export const sampleManifest = (module: string, more: Partial<Manifest> = {}): Manifest =>
  ({ module, config: { port: { default: 8080, schema: { type: 'integer' } } }, ...more })

/** One user of the bus as the broker module's composition lists it. */
export type BusUser = Pick<BusUsers, 'module' | 'publish' | 'subscribe'> & { node: string, user: string }

export class Mesh {
  /** The nodes' curve keys, of those that `node` wrote. */
  readonly curves = new Map<string, KeyPair>()

  constructor (readonly kv: Record<BucketName, KV>, readonly jsm: JetStreamManager, readonly prefix: string) {}

  // What anybody reads.

  /** Undefined where the key was never written, or deleted. */
  async entry (bucket: BucketName, key: string): Promise<KvEntry | undefined> {
    const found = await this.kv[bucket].get(key)
    return found?.operation === 'PUT' ? found : undefined
  }

  /** The value as JSON, or as text where it is none. */
  async get (bucket: BucketName, key: string): Promise<ReturnType<typeof parsed>> {
    const found = await this.entry(bucket, key)
    return found && (parsed(decode(found.value)) ?? decode(found.value))
  }

  async revision (bucket: BucketName, key: string): Promise<number | undefined> { return (await this.entry(bucket, key))?.revision }

  /** A bucket's creation in ms: the epoch of its revisions. */
  async epoch (bucket: BucketName): Promise<number> {
    return Date.parse((await this.jsm.streams.info(`KV_${this.prefix}${bucket}`)).created)
  }

  /** `EPOCH.REVISION` of a key. */
  async meshRevision (bucket: BucketName, key: string): Promise<string> {
    return formatRevision({ epoch: await this.epoch(bucket), revision: await this.revision(bucket, key) ?? 0 })
  }

  composition (node: string, module: string): Promise<Composition | undefined> { return this.get('compositions', `${node}.${module}`) }

  /** The users in the broker module's composition, one a row; undefined where it has no list. */
  async users (node: string, module: string): Promise<BusUser[] | undefined> {
    return (await this.composition(node, module))?.users?.flatMap(({ users, ...rights }) => users.map((user) => ({ ...rights, ...user })))
  }

  /** The seed in a composition's credential, opened with its node's curve key; throws where it was sealed for another. */
  unseal ({ node, credential }: Composition): string {
    const curve = this.curves.get(node)
    if (!curve) throw new Error(`no curve key of ${node} here`)
    const seed = curve.open(Buffer.from(credential.sealed, 'base64url'), credential.by)
    if (!seed) throw new Error(`the credential is not sealed for ${node}`)
    return decode(seed)
  }

  // What builder, indexer and operators write.

  /** Writes a value: a text as it is, anything else as JSON. */
  put (bucket: BucketName, key: string, value: unknown): Promise<number> {
    return this.kv[bucket].put(key, encode(typeof value === 'string' ? value : JSON.stringify(value)))
  }

  delete (bucket: BucketName, key: string): Promise<void> { return this.kv[bucket].delete(key) }

  trunk (module: string, digit: string, more: object = {}): Promise<number> {
    return this.put('trunk', module, { fp: fp(digit), commit: commitOf(digit), ...more })
  }

  done (module: string, digit: string, manifest: unknown = sampleManifest(module)): Promise<number> {
    return this.put('builds', `done.${module}.${fp(digit)}`, { fp: fp(digit), commit: commitOf(digit), manifest })
  }

  hold (module: string): Promise<number> { return this.put('inventory', `module.${module}`, { module }) }
  assign (module: string, nodes: string[]): Promise<number> { return this.put('inventory', `assignment.${module}`, { nodes }) }

  node (node: string): Promise<number> {
    const curve = createCurve()
    this.curves.set(node, curve)
    return this.put('inventory', `node.${node}`, { node, curve: curve.getPublicKey() })
  }

  /** Without `servers`: one, named as the node, whose agent is asked; an empty list asks nobody. */
  seat (module: string, node: string, servers?: string[]): Promise<number> {
    return this.put('inventory', 'seat.broker', { module, node, servers })
  }

  /** As a take-in leaves it; `trunk` is the EPOCH.REVISION of the trunk value it was registered from. */
  async registered (module: string, digit: string, manifest: unknown = sampleManifest(module), trunk?: string): Promise<number> {
    const from = trunk ?? await this.meshRevision('trunk', module)
    return this.put('inventory', `module.${module}`, { module, fp: fp(digit), commit: commitOf(digit), trunk: from, manifest })
  }

  /** Held, built and assigned: all that a take-in needs but its nodes. */
  async ready (module: string, digit = 'a', nodes = ['node-a'], manifest?: unknown): Promise<void> {
    await this.hold(module)
    await this.done(module, digit, manifest)
    await this.trunk(module, digit)
    await this.assign(module, nodes)
  }

  /** The broker module on the node of its seat, registered there: its composition will carry the users. */
  async holder (module: string, node: string, servers: string[] = []): Promise<void> {
    await this.ready(module, 'a', [node], { module })
    await this.registered(module, 'a', { module })
    await this.seat(module, node, servers)
  }
}

/** The buckets, made as the contract has them (`create: false`: those that stand). */
export async function mesh (nc: NatsConnection, { prefix = 'mesh_', create = true } = {}): Promise<Mesh> {
  // A call that a restart of the server swallowed is given up soon enough to be made again.
  const js = nc.jetstream({ timeout: 1000 })
  const kv: Partial<Record<BucketName, KV>> = {}
  for (const name of bucketNames) {
    kv[name] = await js.views.kv(prefix + name, create ? { history: history[name] ?? 1, allow_direct: false } : { bindOnly: true })
  }
  return new Mesh(kv as Record<BucketName, KV>, await nc.jetstreamManager({ timeout: 1000 }), prefix)
}
