/** Sends GETs, in a process of its own. */
import { act } from '../child.js'
import { microseconds } from '../clock.js'
import { HttpClient } from '../wire/http-client.js'

interface Target { port: number, request: string, status: number }

const open = async (target: Target, count: number): Promise<HttpClient[]> =>
  Promise.all(Array.from({ length: count }, () => new HttpClient(target.port, Buffer.from(target.request), target.status).open()))

/** Resolves when one GET on this connection is answered. */
const answered = (client: HttpClient): Promise<void> =>
  new Promise((resolve, reject) => client.send((error) => error ? reject(error) : resolve()))

const commands = {
  /** Closed loop: each connection sends its next GET when the answer to the last is there. Saturates one server process. */
  async closed ({ connections, ms, ...target }: Target & { connections: number, ms: number }): Promise<{ requests: number, seconds: number }> {
    const clients = await open(target, connections)
    const began = microseconds()
    const until = began + ms * 1000
    let requests = 0
    await Promise.all(clients.map((client) => new Promise<void>((resolve, reject) => {
      const next = (error?: Error): void => {
        if (error) return reject(error)
        if (microseconds() >= until) return resolve()
        requests++
        client.send(next)
      }
      next()
    })))
    for (const client of clients) client.close()
    return { requests, seconds: (microseconds() - began) / 1e6 }
  },

  /**
   * Open loop: GETs at fixed times whatever became of those before. Latency runs from the time a GET was due, so a server that
   * stalls is charged for all that it kept waiting, also for those that had to wait for a connection. `late` is how late the
   * generator itself was: its own share.
   */
  async openLoop ({ perSecond, ms, ...target }: Target & { perSecond: number, ms: number }): Promise<{ latencies: number[], late: number[] }> {
    const clients = await open(target, 64)
    // The first answer of a connection costs its parsing, here and there: it is no part of the measurement.
    await Promise.all(clients.map(answered))
    const every = 1e6 / perSecond
    const count = Math.round(ms / 1000 * perSecond)
    const began = microseconds() + 1000
    const latencies: number[] = []
    const late: number[] = []
    await new Promise<void>((resolve, reject) => {
      const free = [...clients]
      const due: number[] = []
      let planned = 0
      const sendDue = (): void => {
        while (due.length > 0 && free.length > 0) {
          const [at, client] = [due.shift()!, free.pop()!]
          client.send((error) => {
            if (error) return reject(error)
            latencies.push(microseconds() - at)
            if (latencies.length === count) return resolve()
            free.push(client)
            sendDue()
          })
        }
      }
      const tick = setInterval(() => {
        for (const now = microseconds(); planned < count && began + planned * every <= now; planned++) {
          due.push(began + planned * every)
          late.push(now - due.at(-1)!)
        }
        sendDue()
        if (planned === count) clearInterval(tick)
      }, 1)
    })
    for (const client of clients) client.close()
    return { latencies, late }
  },

  /** All at once, each on a connection of its own that was open before; resolves when all are answered. */
  async burst (targets: Target[]): Promise<void> {
    const clients = (await Promise.all(targets.map((target) => open(target, 1)))).flat()
    await Promise.all(clients.map(answered))
    for (const client of clients) client.close()
  }
}

export type GetLoadCommands = typeof commands
act(commands)
