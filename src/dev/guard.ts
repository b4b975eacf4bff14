/**
 * Runs a program that knows nothing of dev, and ends it when dev asks, or is gone: dev may be killed by a signal that
 * nobody can answer, and its bus must not stay behind.
 */
import { spawn } from 'node:child_process'
import { limits } from '../core/limits.js'

const [program = '', ...args] = process.argv.slice(2)
const server = spawn(program, args, { stdio: ['ignore', 'inherit', 'inherit'] })
server.once('error', (error) => {
  process.stderr.write(`${program} cannot be started: ${error.message}\n`)
  process.exit(1)
})
server.once('exit', (code) => process.exit(code ?? 1))

// Dev ends the program itself where this process was killed and could not.
if (process.connected) process.send?.({ pid: server.pid })

function end (): void {
  server.kill('SIGTERM')
  setTimeout(() => server.kill('SIGKILL'), limits.stopMs).unref()
}

process.once('SIGTERM', end)
// Where dev was killed the other parts end by themselves; they get a moment to take their leave of the bus.
const orphaned = (): void => { setTimeout(end, limits.orphanedBusMs) }
if (process.connected) process.once('disconnect', orphaned)
else orphaned()
process.on('SIGINT', () => {})
process.on('SIGHUP', () => {})
