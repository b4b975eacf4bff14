import { loadConfig } from '../config.js'
import { messageOf } from '../core/errors.js'
import { prepare, startDev } from '../dev/dev.js'
import { Tree } from '../dev/tree.js'
import type { Command } from './command.js'

const say = (line: string): void => { process.stdout.write(`${line}\n`) }

export const command: Command = {
  async run () {
    const tree = new Tree()
    let unlock = async (): Promise<void> => {}
    const end = async (code: number): Promise<never> => {
      await tree.end()
      await unlock()
      process.exit(code)
    }
    // A second Ctrl-C while the parts are ending changes nothing: each has a bound, and nothing may stay behind.
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => { void end(0) })
    // A terminal that was closed takes its output along; the parts are ended all the same.
    process.on('SIGHUP', () => { void end(0) })
    process.stdout.on('error', () => { void end(1) })
    const failed = (why: string): Promise<never> => {
      process.stderr.write(`mesh-gateway: ${why}; ending the rest\n`)
      return end(1)
    }
    void tree.failure.then(failed)
    const ground = await prepare(loadConfig(process.env), process.env)
    unlock = ground.unlock
    await startDev(ground, tree, process.env, say).catch((error: unknown) => tree.isEnding ? undefined : failed(messageOf(error)))
  }
}
