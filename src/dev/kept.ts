/** Files that are made once and kept: keys and seeds. */
import { randomUUID } from 'node:crypto'
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'

/** A file's text; undefined where there is no such file. */
export async function readIfThere (path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/**
 * The text of a file that is made where it is not there yet, readable by its owner alone. Of several processes that make it
 * at once one wins, and all get its text; none ever sees a file that is half written.
 */
export async function kept (path: string, make: () => string | Promise<string>): Promise<string> {
  const stands = await readIfThere(path)
  if (stands !== undefined) return stands
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const temporary = `${path}.${randomUUID()}`
  try {
    await writeFile(temporary, await make(), { mode: 0o600, flag: 'wx' })
    await link(temporary, path).catch((error: NodeJS.ErrnoException) => { if (error.code !== 'EEXIST') throw error })
  } finally {
    await rm(temporary, { force: true })
  }
  return readFile(path, 'utf8')
}
