/** Clients that go on through a rolling restart as docs/watch.md tells: whoever is told to go comes back a moment later, and says what it has. */
import { Agent, request, type IncomingMessage } from 'node:http'
import { HOST } from '../machine.js'
import type { Owner } from '../owner.js'
import { pause } from '../until.js'
import { sse } from '../wire/sse.js'
import { ws } from '../wire/websocket.js'

export interface Where { port: number, token: string, key: string }

/** Lives until it is ended; `run` rejects with the first thing that went wrong. */
abstract class Client {
  ended = false
  readonly running: Promise<void>
  constructor (protected readonly t: Owner, protected readonly where: Where) { this.running = Promise.resolve().then(() => this.run()) }
  protected abstract run (): Promise<void>
}

/** Gets a value again and again on a connection that is kept. */
export class Getter extends Client {
  answered = 0
  /** Idle connections that had ended by the time the next request was sent. */
  retried = 0
  readonly failures: string[] = []
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 })

  protected async run (): Promise<void> {
    while (!this.ended) {
      const status = await this.#get().catch((error: NodeJS.ErrnoException) => error.code ?? error.message)
      if (status === 200) this.answered++
      else this.failures.push(String(status))
      await pause(5)
    }
    this.#agent.destroy()
  }

  async #get (isRetry = false): Promise<number | undefined> {
    const { port, token, key } = this.where
    const headers = { Authorization: `Bearer ${token}` }
    const asked = request({ host: HOST, port, path: `/provision/config/${key}`, headers, agent: isRetry ? false : this.#agent })
    try {
      return await new Promise((resolve, reject) => {
        asked.on('error', reject).on('response', (answer: IncomingMessage) => {
          answer.on('error', reject).on('end', () => resolve(answer.statusCode)).resume()
        }).end()
      })
    } catch (error) {
      if (!asked.reusedSocket || isRetry) throw error
      this.retried++
      return this.#get(true)
    }
  }
}

/** Watches a value, wherever it is let in. */
export abstract class Watcher extends Client {
  /** What it was handed, in order. */
  readonly handed: number[] = []
  /** How each of its connections ended. */
  readonly ends: string[] = []
  protected etag: string | undefined

  /** The last that it was handed before one that is older. */
  get wentBack (): number | undefined { return this.handed.find((value, i) => value > (this.handed[i + 1] ?? Infinity)) }

  protected async run (): Promise<void> {
    while (!this.ended) {
      const comeBackMs = await this.live()
      await pause(comeBackMs)
    }
  }

  /** One connection; resolves when it has ended, with the pause until the next. */
  protected abstract live (): Promise<number>

  protected take (value: unknown, etag: unknown): void {
    this.handed.push(value as number)
    this.etag = etag as string
  }
}

/** The pause that docs/watch.md asks for. */
const soon = (): number => 500 + Math.random() * 2000
const retryAfter = (headers: Record<string, string>): number => 1000 * Number(headers['retry-after'] ?? 0) + soon() / 4

export class SocketWatcher extends Watcher {
  protected async live (): Promise<number> {
    const { port, token, key } = this.where
    const socket = await ws(this.t, port, { token })
    if (socket.status !== 101) {
      this.ends.push(`status ${socket.status}`)
      return retryAfter(socket.headers)
    }
    const { result } = await socket.watch('config', key, this.etag === undefined ? {} : { since: this.etag })
    if (result && !result.unchanged) this.take(result.value, result.etag)
    let seen = 0
    while (!this.ended && !socket.closed) {
      for (const { value, etag } of socket.changes().slice(seen)) {
        seen++
        this.take(value, etag)
      }
      await pause(50)
    }
    for (const { value, etag } of socket.changes().slice(seen)) this.take(value, etag)
    this.ends.push(`code ${socket.closeCode}`)
    socket.end()
    return soon()
  }
}

export class StreamWatcher extends Watcher {
  protected async live (): Promise<number> {
    const { port, token, key } = this.where
    const headers = this.etag === undefined ? {} : { 'Last-Event-ID': this.etag.replaceAll('"', '') }
    const stream = await sse(this.t, port, `/provision/config/${key}`, { token, headers })
    if (stream.status !== 200) {
      this.ends.push(`status ${stream.status}`)
      return retryAfter(stream.headers)
    }
    let seen = 0
    const catchUp = (): void => {
      for (const { json } of stream.named('value').slice(seen)) {
        seen++
        this.take(json.value, json.etag)
      }
    }
    while (!this.ended && !stream.closed) {
      catchUp()
      await pause(50)
    }
    catchUp()
    this.ends.push(stream.retry === undefined ? 'no retry' : 'retry')
    stream.end()
    return stream.retry ?? soon()
  }
}
