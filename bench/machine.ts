/** What a run ran on, read from the run itself. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism, cpus, loadavg, release, type, version } from 'node:os'
import { dirname, join } from 'node:path'
import { findNatsServer } from '../src/dev/nats-binary.js'

export interface Machine {
  at: string
  cores: number
  processor: string
  system: string
  /** Load average of the minute before the run: what others did meanwhile is in the figures. */
  loadBefore: number
  versions: Record<string, string>
}

const require = createRequire(import.meta.url)

function versionOf (name: string): string {
  // Not every package exports its package.json: look beside what it does export.
  for (let folder = dirname(require.resolve(name)); ; folder = dirname(folder)) {
    try {
      const found = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { name?: string, version?: string }
      if (found.name === name && found.version !== undefined) return found.version
    } catch { /* further up */ }
    if (folder === dirname(folder)) return 'unknown'
  }
}

export function machine (): Machine {
  const server = findNatsServer()
  return {
    at: new Date().toISOString(),
    cores: availableParallelism(),
    processor: cpus()[0]?.model ?? 'unknown',
    system: `${type()} ${release()}`.trim() || version(),
    loadBefore: loadavg()[0] ?? 0,
    versions: {
      node: process.versions.node,
      ...Object.fromEntries(['fastify', 'ws', 'nats'].map((name) => [name, versionOf(name)])),
      'nats-server': server ? execFileSync(server, ['--version'], { encoding: 'utf8' }).trim().replace(/^nats-server:? v?/, '') : 'none'
    }
  }
}
