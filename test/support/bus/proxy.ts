/** Stands between two that talk over TCP: late, cut, refusing, or open on one side only. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { HOST } from '../machine.js'
import { atEnd, type Owner } from '../owner.js'

export class Proxy {
  /** Delay of each packet, both ways, in ms. */
  lag = 0
  /** Whether packets to the client (down) or to the server (up) are kept back. */
  holdDown = false
  holdUp = false
  refuse = false
  /** Connections that were taken so far, and bytes that clients sent. */
  connections = 0
  bytesUp = 0
  readonly #pairs = new Set<[Socket, Socket]>()
  readonly #held: Array<() => void> = []
  readonly #server: Server

  constructor (readonly target: number) { this.#server = createServer((client) => this.#join(client)) }

  get port (): number { return (this.#server.address() as AddressInfo).port }
  get url (): string { return `nats://${HOST}:${this.port}` }

  listen (port = 0): Promise<this> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject).listen(port, HOST, () => resolve(this))
    })
  }

  /** Ends all connections and takes no new one. */
  cut (): void {
    this.refuse = true
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy()
    this.#pairs.clear()
  }

  /** Nothing passes, and neither side is told: a connection that is half open. */
  blackhole (): void { this.holdDown = this.holdUp = true }

  /** Hands on what was kept back, and lets all pass. */
  release (): void {
    this.holdDown = this.holdUp = false
    for (const pass of this.#held.splice(0)) pass()
  }

  /** Takes connections again; what was kept back is lost. */
  mend (): void {
    this.refuse = false
    this.#held.length = 0
    this.release()
  }

  close (): void {
    this.cut()
    this.#server.close()
  }

  #join (client: Socket): void {
    if (this.refuse) {
      client.destroy()
      return
    }
    this.connections++
    const server = connect(this.target, HOST)
    const pair: [Socket, Socket] = [client, server]
    this.#pairs.add(pair)
    client.on('data', (data) => {
      this.bytesUp += data.length
      this.#pass(server, data, this.holdUp)
    })
    server.on('data', (data) => this.#pass(client, data, this.holdDown))
    const part = () => {
      for (const socket of pair) socket.destroy()
      this.#pairs.delete(pair)
    }
    // An end is news, too: it is as late as the packets before it, and does not pass a black hole.
    for (const socket of pair) {
      socket.on('error', () => { /* close follows */ })
      socket.on('close', () => { if (!this.holdDown && !this.holdUp) setTimeout(part, this.lag) })
    }
  }

  #pass (to: Socket, data: Buffer, hold: boolean): void {
    const write = () => { if (!to.destroyed) to.write(data) }
    if (hold) this.#held.push(write)
    else if (this.lag > 0) setTimeout(write, this.lag)
    else write()
  }
}

/** A proxy in front of a port of this machine. */
export async function proxy (t: Owner, target: number, listen = 0): Promise<Proxy> {
  const made = new Proxy(target)
  atEnd(t, () => made.close())
  return made.listen(listen)
}
