/** Tells that a file was written, without reading it. */
import { statSync } from 'node:fs'

/** Something that differs once the file was written; undefined where it cannot be looked at. */
export function fileVersion (path: string): string | undefined {
  try {
    // Through links: a file that an orchestrator mounts is exchanged by moving a link.
    const { mtimeMs, size, ino } = statSync(path)
    return `${mtimeMs}.${size}.${ino}`
  } catch {
    return undefined
  }
}
