/** `mesh-gateway openapi`: the API's description, generated from the routes' schemas. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pino } from 'pino'
import { buildApp } from '../app.js'
import { loadConfig } from '../config.js'
import { descriptionYaml } from '../http/openapi.js'
import type { Identity } from '../identity/identity.js'
import { unauthenticated } from '../identity/principal.js'
import { Mesh } from '../nats/mesh.js'
import { packageRoot } from '../package-info.js'
import type { Command } from './command.js'

/** Where the checked-in copy stands. */
export const openapiFile = join(packageRoot, 'openapi.yaml')

const nobody: Identity = {
  certificates: undefined,
  cached: () => undefined,
  stands: () => false,
  lives: () => false,
  refresh: async () => {},
  principalOf: async () => { throw unauthenticated('only the description is asked here') }
}

/** The description as YAML. Nothing listens, and the bus is not reached. */
export async function describe (): Promise<string> {
  const config = { ...loadConfig({}), MESH_NODE: 'node-a' }
  const app = await buildApp({ core: new Mesh(config, pino({ level: 'silent' })), config, identity: nobody })
  await app.ready()
  try {
    return descriptionYaml(app)
  } finally {
    await app.close()
  }
}

export const command: Command = {
  options: { write: { type: 'boolean', about: 'write it to openapi.yaml of the project instead' } },
  async run ({ options }) {
    const yaml = await describe()
    if (options.write) await writeFile(openapiFile, yaml)
    else process.stdout.write(yaml)
  }
}
