/** The nkey seeds of a data folder: one user of the bus for each role, and each node's curve key (DESIGN section 9). */
import { join } from 'node:path'
import { createCurve, createUser, fromCurveSeed, fromSeed, type KeyPair } from 'nkeys.js'
import { ConfigError } from '../config.js'
import { messageOf } from '../core/errors.js'
import { kept, readIfThere } from './kept.js'

/** Who is on dev's bus besides the modules. `operator` may do all, and is what the commands use. */
export const busRoles = ['operator', 'gateway', 'provisioner', 'broker'] as const
export type BusRole = typeof busRoles[number]

export const seedFile = (dataDir: string, role: BusRole): string => join(dataDir, `${role}.nk`)
export const curveFile = (dataDir: string, node: string): string => join(dataDir, 'nodes', `${node}.curve`)

function opened (path: string, text: string, open: (seed: Uint8Array) => KeyPair): KeyPair {
  try {
    return open(Buffer.from(text.trim()))
  } catch (error) {
    throw new ConfigError(`${path} holds no seed (${messageOf(error)}): delete it, and a new one is made`)
  }
}

const seedOf = (pair: KeyPair): string => `${Buffer.from(pair.getSeed()).toString()}\n`

/** The user of a role; its seed is made where the folder has none. */
export async function roleUser (dataDir: string, role: BusRole): Promise<KeyPair> {
  const path = seedFile(dataDir, role)
  return opened(path, await kept(path, () => seedOf(createUser())), fromSeed)
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
