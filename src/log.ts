/** The log of a process: JSON lines on standard output. */
import { pino, type Logger, type LoggerOptions } from 'pino'

let guarded = false

/**
 * A logger that writes through `process.stdout`. pino's own writer, when a process ends and its reader is gone, tries the broken pipe for
 * ever: a gateway whose parent was killed would never end. A line that nobody reads is lost instead.
 */
export function createLog (options: LoggerOptions): Logger {
  if (!guarded) process.stdout.on('error', () => { /* nobody reads */ })
  guarded = true
  return pino(options, { write: (line: string) => { process.stdout.write(line) } })
}
