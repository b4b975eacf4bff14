/** What a test takes of the machine: ports, folders, processes. Loopback only. */
import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packageRoot } from '../../src/package-info.js'
import { atEnd, type Owner } from './owner.js'

export const HOST = '127.0.0.1'
export const projectRoot = packageRoot

// Below the range from which the kernel takes the ports of outgoing connections: a port must still be free when a
// server that was killed comes back to it.
const lowest = 20_000
const highest = 32_000
const given = new Set<number>()

const isFree = (port: number): Promise<boolean> => new Promise((resolve) => {
  const probe = createServer()
  probe.once('error', () => resolve(false))
  probe.listen(port, HOST, () => probe.close(() => resolve(true)))
})

/** A port of the loopback address that nobody listens on; never the same twice in a process. */
export async function freePort (): Promise<number> {
  for (let tries = 0; tries < 200; tries++) {
    const port = lowest + Math.floor(Math.random() * (highest - lowest))
    if (given.has(port) || !await isFree(port)) continue
    given.add(port)
    return port
  }
  throw new Error(`no free port between ${lowest} and ${highest}`)
}

/** A folder that is gone with the test. */
export function temporaryFolder (t: Owner, name = 'mesh-gateway'): string {
  const folder = mkdtempSync(join(tmpdir(), `${name}-`))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }))
  return folder
}

const running = new Set<ChildProcess>()
process.on('exit', () => { for (const child of running) child.kill('SIGKILL') })

/** Starts a program that does not outlive the test, nor a test process that ends early. */
export function start (t: Owner, command: string, args: string[], options: SpawnOptions): ChildProcess {
  const child = spawn(command, args, options)
  running.add(child)
  child.once('exit', () => running.delete(child))
  child.once('error', () => running.delete(child))
  atEnd(t, () => end(child))
  return child
}

export const hasEnded = (child: ChildProcess): boolean => child.pid === undefined || child.exitCode !== null || child.signalCode !== null

/** Ends a program with a signal and waits until it is gone; nothing to do where it is. A stopped one ends by SIGKILL only. */
export async function end (child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
  if (hasEnded(child)) return
  const gone = once(child, 'exit')
  child.kill(signal)
  await gone
}
