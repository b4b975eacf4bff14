/** One process of dev's tree: started with a channel to dev, so that it ends when dev is gone; heard; ended in its turn. */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'

export interface PartOptions {
  name: string
  /** The module to run, and what to give it. */
  file: string
  args: string[]
  env: NodeJS.ProcessEnv
  say (line: string): void
  /** ms from the request to end until it is ended. */
  endMs: number
}

export class Part {
  readonly name: string
  /** Why it is not running any more, as a clause; resolves when it has ended. */
  readonly ended: Promise<string>
  /** Resolves with the first thing that it says over its channel, which is that it is ready; rejects when it ends before. */
  readonly ready: Promise<unknown>
  readonly #child: ChildProcess
  readonly #endMs: number

  constructor ({ name, file, args, env, say, endMs }: PartOptions) {
    this.name = name
    this.#endMs = endMs
    // A group of its own: a terminal's Ctrl-C reaches dev alone, which then ends the parts in their order.
    const child = this.#child = fork(file, args, { env, detached: true, stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
    for (const stream of [child.stdout, child.stderr]) if (stream) createInterface({ input: stream }).on('line', say)
    this.ended = new Promise((resolve) => {
      child.once('error', (error) => resolve(`cannot be started: ${error.message}`))
      child.once('exit', (code, signal) => resolve(signal ? `was ended by ${signal}` : `ended with exit code ${code}`))
    })
    this.ready = Promise.race([
      once(child, 'message').then(([message]: unknown[]) => message),
      this.ended.then((why) => { throw new Error(`${name} ${why} before it was ready`) })
    ])
    // Whoever waits for it hears of it; whoever does not hears of the end.
    this.ready.catch(() => {})
  }

  get wasKilled (): boolean { return this.#child.signalCode !== null }

  /** Asks it to end, and ends it where it takes too long. */
  async end (): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null || this.#child.pid === undefined) return
    this.#child.kill('SIGTERM')
    const late = new AbortController()
    void pause(this.#endMs, undefined, { signal: late.signal }).then(() => this.#child.kill('SIGKILL'), () => {})
    await this.ended
    late.abort()
  }
}
