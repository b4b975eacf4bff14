/** Processes that take part in a run: how they are started, asked, measured and ended. Linux: what they cost is read from /proc. */
import { fork, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

const running = new Set<ChildProcess>()
// Nothing may outlive the run, however it ends: a generator left over would spoil the next one.
process.on('exit', () => { for (const child of running) child.kill('SIGKILL') })

function watched (child: ChildProcess): ChildProcess {
  running.add(child)
  child.once('exit', () => running.delete(child))
  return child
}

/** Starts a program; what it says on stderr is shown. */
export const run = (program: string, args: string[], env: NodeJS.ProcessEnv = {}): ChildProcess =>
  watched(spawn(program, args, { env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env }, stdio: ['ignore', 'ignore', 'inherit'] }))

/** Ends a process and waits until it is gone; one that does not end in time is killed. */
export async function end (child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill(signal)
  const late = new AbortController()
  void pause(10_000, undefined, { signal: late.signal }).then(() => child.kill('SIGKILL'), () => undefined)
  await gone
  late.abort()
}

const ticksPerSecond = 100

export interface CpuTime { user: number, kernel: number }

/** CPU time that a process took since a time before, all its threads together, in µs (in steps of 10 ms). */
export function cpuTime (pid: number, before: CpuTime = { user: 0, kernel: 0 }): CpuTime {
  // The name of the program, in parentheses, may hold blanks: the numbers begin after it.
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ')
  const [user = 0, kernel = 0] = fields.slice(11, 13).map((ticks) => Number(ticks) * 1e6 / ticksPerSecond)
  return { user: user - before.user, kernel: kernel - before.kernel }
}

/** Memory that a process holds now (resident set), in bytes. */
export const residentBytes = (pid: number): number =>
  Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024

/** The resident set of a gateway that `collects`, without garbage: once it stands still, or after ten seconds. */
export async function settledBytes (pid: number): Promise<number> {
  let last = residentBytes(pid)
  for (let looks = 0, still = 0; looks < 20 && still < 3; looks++) {
    process.kill(pid, 'SIGUSR2')
    await pause(500)
    const now = residentBytes(pid)
    still = Math.abs(now - last) < 256 * 1024 ? still + 1 : 0
    last = now
  }
  return last
}

/** What an actor can be asked: one argument, one answer, both plain JSON. */
export type Commands = Record<string, (given: any) => any>

interface Question { id: number, name: string, given: unknown }
interface Reply { id: number, answer?: unknown, error?: string }

/** An actor's side: answers commands until it is ended, or its starter is gone. */
export function act (commands: Commands): void {
  process.on('disconnect', () => process.exit())
  process.on('message', async ({ id, name, given }: Question) => {
    const reply: Reply = { id }
    try {
      reply.answer = await commands[name]!(given)
    } catch (error) {
      reply.error = error instanceof Error ? error.message : String(error)
    }
    process.send?.(reply)
  })
  process.send?.({ id: 0 })
}

/** The starter's side of an actor: a load generator, a yardstick or a stand-in, in a process of its own. */
export class Actor<C extends Commands> {
  readonly #waiting = new Map<number, { resolve (answer: unknown): void, reject (error: Error): void }>()
  #last = 0

  private constructor (readonly name: string, readonly process: ChildProcess) {
    process.on('message', ({ id, answer, error }: Reply) => {
      const waiting = this.#waiting.get(id)
      this.#waiting.delete(id)
      if (error !== undefined) waiting?.reject(new Error(`${name}: ${error}`))
      else waiting?.resolve(answer)
    })
    process.once('exit', (code, signal) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`${name} ended (${code ?? signal})`))
    })
  }

  /** Starts `bench/actors/NAME` and resolves when it can be asked. */
  static async start<C extends Commands> (name: string): Promise<Actor<C>> {
    const child = watched(fork(join(import.meta.dirname, 'actors', `${name}.js`), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }))
    const actor = new Actor<C>(name, child)
    await new Promise((resolve, reject) => actor.#waiting.set(0, { resolve, reject }))
    return actor
  }

  get pid (): number { return this.process.pid as number }

  call<K extends keyof C & string> (name: K, given?: Parameters<C[K]>[0]): Promise<Awaited<ReturnType<C[K]>>> {
    const id = ++this.#last
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: resolve as (answer: unknown) => void, reject })
      this.process.send({ id, name, given } satisfies Question)
    })
  }

  async end (): Promise<void> { await end(this.process, 'SIGKILL') }
}
