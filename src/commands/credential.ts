import { ConfigError, loadConfig } from '../config.js'
import { readDocument } from '../core/documents.js'
import { isName, namePattern } from '../core/names.js'
import { curveFile, curveIn } from '../dev/seeds.js'
import { NatsStore } from '../nats/buckets.js'
import { CompositionSchema, type Credential } from '../schemas/composition.js'
import { onBus } from './bus.js'
import { UsageError, type Command } from './command.js'

/** The bus seed in a credential, opened with the node's curve seed in a file. */
async function unseal ({ sealed, by, to }: Credential, file: string): Promise<string> {
  const curve = await curveIn(file)
  if (!curve) throw new ConfigError(`NODE_CURVE_SEED_FILE is needed: there is no ${file} with the node's curve seed`)
  if (curve.getPublicKey() !== to) throw new ConfigError(`the credential is sealed to another curve key than that of ${file}: a take-in makes a new one for the node's present key`)
  const seed = curve.open(Buffer.from(sealed, 'base64url'), by)
  if (!seed) throw new Error('the credential cannot be opened: its box is damaged')
  return Buffer.from(seed).toString()
}

export const command: Command = {
  positionals: ['MODULE'],
  async run ({ positionals: [module = ''] }) {
    if (!isName(module)) throw new UsageError(`credential: "${module}" is no module's name: expected one that matches ${namePattern}`)
    const config = loadConfig(process.env)
    const { MESH_NODE: node = 'node-a', DATA_DIR, MESH_PREFIX } = config
    const key = `${node}.${module}`
    const entry = await onBus(config, 'credential', (nc) => new NatsStore(nc, MESH_PREFIX).read('compositions', key))
    if (!entry || entry.deleted) throw new Error(`module ${module} has no composition on node ${node}: take it in first, or set MESH_NODE to a node it is on`)
    const { credential } = readDocument('compositions', entry, CompositionSchema)
    process.stdout.write(`${await unseal(credential, process.env.NODE_CURVE_SEED_FILE || curveFile(DATA_DIR, node))}\n`)
  }
}
