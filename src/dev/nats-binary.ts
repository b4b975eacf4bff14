import { accessSync, constants, existsSync, statSync } from 'node:fs'
import { delimiter, dirname, join, resolve } from 'node:path'

/** What to do where no nats-server is found, as a clause for an error's sentence. */
export const howToGetNatsServer = 'run "npm run setup" in a clone, or install nats-server 2.9 or newer on the PATH, or set NATS_SERVER_BIN to it'

function executable (file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch { return false }
}

/** The folder of package.json: two or three levels up, from source or from dist. */
function packageRoot (): string {
  let folder = import.meta.dirname
  while (!existsSync(join(folder, 'package.json')) && dirname(folder) !== folder) folder = dirname(folder)
  return folder
}

/**
 * The nats-server to start: `NATS_SERVER_BIN`, else the first on the PATH, else the private copy that `npm run setup` keeps
 * in the cache folder (`MESH_CACHE_DIR`, default `.cache`). Undefined where there is none; never a fallback for a
 * NATS_SERVER_BIN that is wrong. scripts/setup.mjs looks in the same places, in the same order.
 */
export function findNatsServer (env: NodeJS.ProcessEnv = process.env): string | undefined {
  if (env.NATS_SERVER_BIN) return executable(env.NATS_SERVER_BIN) ? env.NATS_SERVER_BIN : undefined
  const name = process.platform === 'win32' ? 'nats-server.exe' : 'nats-server'
  const cache = env.MESH_CACHE_DIR ? resolve(env.MESH_CACHE_DIR) : join(packageRoot(), '.cache')
  const places = (env.PATH ?? '').split(delimiter).filter(Boolean).map((folder) => join(folder, name))
  return [...places, join(cache, 'nats', 'usr', 'sbin', 'nats-server')].find(executable)
}
