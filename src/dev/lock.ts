/** One dev a data folder: two servers on one store would destroy it. */
import { createConnection } from 'node:net'
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ConfigError } from '../config.js'
import { readIfThere } from './kept.js'

const answersAt = (port: number): Promise<boolean> => new Promise((resolve) => {
  const socket = createConnection({ host: '127.0.0.1', port })
  socket.once('connect', () => { socket.destroy(); resolve(true) })
  socket.once('error', () => resolve(false))
})

function lives (pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/**
 * Takes a folder for this process and the bus at a port; answers how to give it back. Throws ConfigError where another
 * has it. A lock counts while its process lives and its bus answers: a pid alone may by now be somebody else's.
 */
export async function lockFolder (folder: string, busPort: number): Promise<() => Promise<void>> {
  const file = join(folder, 'dev.lock')
  const [pid, port] = (await readIfThere(file) ?? '').split(' ').map(Number)
  if (pid && port && pid !== process.pid && lives(pid) && await answersAt(port)) {
    throw new ConfigError(`DATA_DIR is ${folder}, but another dev uses it (process ${pid}): end that one, or set DATA_DIR to another folder`)
  }
  await writeFile(file, `${process.pid} ${busPort}\n`)
  return () => rm(file, { force: true })
}
