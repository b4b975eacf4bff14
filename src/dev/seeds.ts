/** The nkey seeds of a data folder: users of the bus, one for each role and each node's provisioner, and the nodes' curve keys (DESIGN section 9). */
import { join } from 'node:path'
import { createCurve, createUser, fromCurveSeed, fromSeed, type KeyPair } from 'nkeys.js'
import { ConfigError } from '../config.js'
import { messageOf } from '../core/errors.js'
import { kept, readIfThere } from './kept.js'

/**
 * Who is on dev's bus besides the modules and the nodes' provisioners. `operator` may do all, and is what the commands use;
 * `inventory` is an operator as a mesh in production has one.
 */
export type BusRole = 'operator' | 'gateway' | 'broker' | 'builder' | 'indexer' | 'inventory'

export const seedFile = (dataDir: string, role: BusRole): string => join(dataDir, `${role}.nk`)
export const provisionerSeedFile = (dataDir: string, node: string): string => join(dataDir, 'nodes', `${node}.provisioner.nk`)
export const curveFile = (dataDir: string, node: string): string => join(dataDir, 'nodes', `${node}.curve`)

function opened (path: string, text: string, open: (seed: Uint8Array) => KeyPair): KeyPair {
  try {
    return open(Buffer.from(text.trim()))
  } catch (error) {
    throw new ConfigError(`${path} holds no seed (${messageOf(error)}): delete it, and a new one is made`)
  }
}

const seedOf = (pair: KeyPair): string => `${Buffer.from(pair.getSeed()).toString()}\n`

/** The public key of the user whose seed is in a file; a seed is made where there is none. */
export async function userKey (path: string): Promise<string> {
  return opened(path, await kept(path, () => seedOf(createUser())), fromSeed).getPublicKey()
}

/** The curve key of a node; its seed is made where the folder has none. */
export async function nodeCurve (dataDir: string, node: string): Promise<KeyPair> {
  const path = curveFile(dataDir, node)
  return opened(path, await kept(path, () => seedOf(createCurve())), fromCurveSeed)
}

/** The curve key whose seed is in a file; undefined where there is no such file. */
export async function curveIn (path: string): Promise<KeyPair | undefined> {
  const text = await readIfThere(path)
  return text === undefined ? undefined : opened(path, text, fromCurveSeed)
}
