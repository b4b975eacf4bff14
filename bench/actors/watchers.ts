/** Thousands of watchers in one process of their own, of the gateway or of NATS's WebSocket listener, by the same code. */
import { act } from '../child.js'
import { microseconds } from '../clock.js'
import { textFrame, WebSocketClient } from '../wire/websocket-client.js'

interface Opening {
  /** A name for these watchers. */
  group: string
  port: number
  path: string
  headers: Record<string, string>
  /** What each watcher says once it is open; one text a watcher. */
  says: string[]
  /** What the payload begins with that says a watch stands, and what one with a change begins with. */
  ready: string
  change: string
}

/** So many handshakes at a time: more would overrun the listener's backlog. */
const opening = 100

class Group {
  readonly clients: WebSocketClient[] = []
  #failure: Error | undefined
  #arrivals = 0
  #lastAt = 0
  #done: (error?: Error) => void = () => {}

  arm (): void { this.#arrivals = 0 }

  arrived (): void {
    if (++this.#arrivals < this.clients.length) return
    this.#lastAt = microseconds()
    this.#done()
  }

  fail (error: Error): void {
    this.#failure ??= error
    this.#done(error)
  }

  /** When the change that it was armed for reached the last watcher. */
  async last (ms: number): Promise<number> {
    if (this.#failure) throw this.#failure
    if (this.#arrivals < this.clients.length) {
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`${this.#arrivals} of ${this.clients.length} watchers were told within ${ms} ms`)), ms)
        this.#done = (error) => {
          clearTimeout(timer)
          if (error) reject(error)
          else resolve()
        }
      })
    }
    return this.#lastAt
  }

  /** Opens one more; resolves when its watch stands. */
  async open ({ port, path, headers, ready, change }: Opening, says: string): Promise<void> {
    const [isReady, isChange] = [startsWith(ready), startsWith(change)]
    const client = await new Promise<WebSocketClient>((resolve, reject) => {
      const client = new WebSocketClient({
        port,
        path,
        headers,
        message: (payload) => {
          if (isChange(payload)) this.arrived()
          else if (isReady(payload)) resolve(client)
        },
        failed: (error) => {
          this.fail(error)
          reject(error)
        }
      }, () => client.write(textFrame(says)))
    })
    this.clients.push(client)
  }
}

function startsWith (text: string): (payload: Buffer) => boolean {
  const start = Buffer.from(text)
  return (payload) => payload.length >= start.length && start.compare(payload, 0, start.length) === 0
}

const groups = new Map<string, Group>()

function groupOf (name: string): Group {
  const group = groups.get(name)
  if (!group) throw new Error(`there are no watchers ${name}`)
  return group
}

const commands = {
  /** Opens one watcher for each text; resolves when all their watches stand. A group that is there grows. */
  async open (given: Opening): Promise<void> {
    const group = groups.get(given.group) ?? new Group()
    groups.set(given.group, group)
    const left = [...given.says]
    await Promise.all(Array.from({ length: opening }, async () => {
      for (let says = left.pop(); says !== undefined; says = left.pop()) await group.open(given, says)
    }))
  },

  /** Before a change is made: counts its arrivals from none. */
  arm (group: string) { groupOf(group).arm() },

  /** When the change reached the last of the group, in µs of the machine's clock; waits until it has. */
  last: (group: string): Promise<number> => groupOf(group).last(10_000),

  /** None of the group reads anything from now on. */
  mute (group: string) { for (const client of groupOf(group).clients) client.mute() },

  close (group: string) {
    for (const client of groupOf(group).clients) client.close()
    groups.delete(group)
  }
}

export type WatchersCommands = typeof commands
act(commands)
