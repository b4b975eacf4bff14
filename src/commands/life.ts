/** How a process that runs until it is told to stop ends: on a signal, or with the process that started it. */
import { limits } from '../core/limits.js'

/**
 * A process that was forked ends with its parent, even one that was killed: the channel between them is closed then. The
 * channel itself keeps nothing alive.
 */
export function endWithParent (): void {
  const end = (): void => { process.kill(process.pid, 'SIGTERM') }
  // The parent was gone before this was read; a process that was not forked has no `connected` at all.
  if (process.connected === false) return end()
  process.once('disconnect', end)
  process.channel?.unref()
}

/** Tells a parent that this process is ready; nothing where there is none. */
export function tellReady (): void {
  if (process.connected) process.send?.('ready')
}

/**
 * Runs `stop` at the first SIGTERM or SIGINT and exits with 0, with 1 where it fails or takes longer than `afterMs`. A second
 * signal changes nothing: npm sends on the Ctrl-C that the terminal has sent already.
 */
export function onSignal (stop: () => Promise<void>, afterMs: number = limits.stopMs): void {
  let stopping = false
  const end = (): void => {
    if (stopping) return
    stopping = true
    setTimeout(() => process.exit(1), afterMs).unref()
    stop().then(() => process.exit(0), (error: Error) => {
      process.stderr.write(`mesh-gateway: ${error.message}\n`)
      process.exit(1)
    })
  }
  process.on('SIGTERM', end)
  process.on('SIGINT', end)
  endWithParent()
}
