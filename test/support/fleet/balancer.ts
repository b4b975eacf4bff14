/** A plain TCP balancer: it copies bytes, and hands each new connection to the next gateway whose /readyz was 200 when it looked last. */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { HOST } from '../machine.js'
import { atEnd, type Owner } from '../owner.js'
import { http } from '../wire/http.js'
import { isGateway } from '../wire/spec.js'

const lookMs = 100

export class Balancer {
  readonly #ready = new Set<number>()
  readonly #open = new Set<Socket>()
  readonly #server = createServer({ allowHalfOpen: true }, (client) => this.#join(client))
  #turn = 0
  #looking: NodeJS.Timeout | undefined

  constructor (private readonly targets: number[]) {}

  get port (): number { return (this.#server.address() as AddressInfo).port }

  /** The gateways that get new connections. */
  get ready (): number[] { return this.targets.filter((port) => this.#ready.has(port)) }

  async start (): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, HOST, resolve))
    isGateway(this.port)
    this.#looking = setInterval(() => this.#look(), lookMs)
    return this
  }

  close (): void {
    clearInterval(this.#looking)
    for (const socket of this.#open) socket.destroy()
    this.#server.close()
  }

  #look (): void {
    for (const port of this.targets) {
      void http(port, 'GET', '/readyz', { wait: 1000 }).then(({ status }) => status === 200 ? this.#ready.add(port) : this.#ready.delete(port))
    }
  }

  #join (client: Socket): void {
    const target = this.ready[this.#turn++ % Math.max(1, this.#ready.size)]
    if (target === undefined) {
      client.destroy()
      return
    }
    const gateway = connect({ port: target, host: HOST, allowHalfOpen: true })
    for (const [from, to] of [[client, gateway], [gateway, client]] as const) {
      this.#open.add(from)
      from.on('error', () => to.destroy())
      from.on('close', () => {
        this.#open.delete(from)
        to.destroySoon()
      })
      from.pipe(to)
    }
  }
}

/** A balancer in front of these ports, which listens until the test ends. */
export async function balancer (t: Owner, targets: number[]): Promise<Balancer> {
  const made = new Balancer(targets)
  atEnd(t, () => made.close())
  return made.start()
}
