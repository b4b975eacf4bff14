/** The bus that a command talks to: the one of NATS_URL, else dev's own (DESIGN section 9). */
import { connect, type NatsConnection } from 'nats'
import { existsSync } from 'node:fs'
import { ConfigError, type Environment } from '../config.js'
import { messageOf } from '../core/errors.js'
import { seedFile } from '../dev/seeds.js'
import { busOptions } from '../nats/connection.js'

/** The configuration with a bus in it. Throws ConfigError where there is neither NATS_URL nor a data folder of dev. */
export function withBus (config: Environment): Environment {
  if (config.NATS_URL !== undefined) return config
  const seed = seedFile(config.DATA_DIR, 'operator')
  if (!existsSync(seed)) {
    throw new ConfigError(`NATS_URL is not set, and there is no ${seed}: start "mesh-gateway dev" first, or name the bus`)
  }
  return { ...config, NATS_URL: `nats://127.0.0.1:${config.NATS_PORT}`, NATS_NKEY_SEED_FILE: config.NATS_NKEY_SEED_FILE ?? seed }
}

/** What to do about a bus that does not take the connection. */
function hint ({ NATS_URL }: Environment, error: unknown): string {
  if (/AUTH/.test((error as { code?: string }).code ?? '')) return 'NATS_NKEY_SEED_FILE or NATS_CREDS must hold a user of that bus'
  if (NATS_URL !== undefined) return 'see that it runs, and that NATS_URL names it'
  return 'see that "mesh-gateway dev" runs; where its bus has another port, say it in NATS_PORT, or name another bus in NATS_URL'
}

/** Does one thing on the bus and leaves it. Unlike a gateway it does not wait for a bus that is not there. */
export async function onBus<T> (config: Environment, name: string, act: (nc: NatsConnection) => Promise<T>): Promise<T> {
  const reached = withBus(config)
  let nc: NatsConnection
  try {
    nc = await connect({ ...busOptions(reached, name), ignoreAuthErrorAbort: false })
  } catch (error) {
    throw new ConfigError(`the bus at ${reached.NATS_URL} does not take the connection (${messageOf(error)}): ${hint(config, error)}`)
  }
  try {
    return await act(nc)
  } finally {
    await nc.close()
  }
}
