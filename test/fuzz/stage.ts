/** Where the fuzz runs: a gateway on a real bus, and the looks that show that nothing of what was tried harmed it. */
import { readdirSync, readFileSync } from 'node:fs'
import type { NatsConnection } from 'nats'
import type { Mesh } from '../support/bus/buckets.js'
import type { NatsServer } from '../support/bus/nats-server.js'
import type { StandInProvisioner } from '../support/bus/provisioner.js'
import { gatewayOnFixture } from '../support/fixture.js'
import type { Gateway } from '../support/gateway.js'
import type { Owner } from '../support/owner.js'
import { until } from '../support/until.js'
import { http } from '../support/wire/http.js'
import { signers, svid, type Signers } from '../support/wire/signing.js'
import { ws } from '../support/wire/websocket.js'

/** Stands in every value that is drawn where values stand: whoever finds it in a log or an error has found a leak. */
export const valueMark = 'fuzzed-value-4711'

/** An answer takes no longer, in ms: the longest of its own bounds is ASK_TIMEOUT_MS, and the machine is shared. */
export const boundMs = 8000

interface Held { fds: number, rss: number }

export class Stage {
  readonly owner: Owner
  readonly tokens: Record<'m1' | 'm2' | 'm3' | 'operator' | 'reader', string>
  #before: Held | undefined

  private constructor (
    owner: Owner,
    readonly server: NatsServer, readonly nc: NatsConnection, readonly mesh: Mesh, readonly prov: StandInProvisioner,
    readonly gateway: Gateway, readonly keys: Signers
  ) {
    this.owner = owner
    const token = (who: string): string => svid(keys.ed, who, { exp: Math.floor(Date.now() / 1000) + 86_400 })
    this.tokens = { m1: token('module/m1'), m2: token('module/m2'), m3: token('module/m3'), operator: token('operator/alice'), reader: token('reader/grafana') }
  }

  static async open (t: Owner): Promise<Stage> {
    const keys = signers()
    // Take-ins by themselves, too: what is written to the buckets is also heard.
    const env = { TAKE_IN: 'auto', ASK_TIMEOUT_MS: '400', LOG_LEVEL: 'debug' }
    const { server, nc, mesh, prov, gateway } = await gatewayOnFixture(t, { keys, env })
    return new Stage(t, server, nc, mesh, prov, gateway, keys)
  }

  get port (): number { return this.gateway.port }

  /** Throws where the gateway is not as sound as before: called between inputs. */
  async look (): Promise<void> {
    this.gateway.assertSound()
    const log = JSON.stringify(this.gateway.log) + this.gateway.stderr
    // A take-in that failed at a step is told as an error, and is none of the gateway's.
    const stray = this.gateway.log.find(({ level = 0, problem, step }) => (level >= 50 && step === undefined) || problem === 'internal')
    const warning = /.{0,300}(?:uncaught|unhandled|MaxListenersExceeded).{0,600}/i.exec(log)?.[0]
    this.gateway.log.length = 0
    this.gateway.stderr = ''
    if (stray || warning !== undefined) throw new Error(`the log says: ${warning ?? JSON.stringify(stray)}`)
    for (const [name, secret] of [...Object.entries(this.tokens), ['a value', valueMark]] as Array<[string, string]>) {
      // A token's signature alone would be as bad.
      if (log.includes(secret.split('.').at(-1) as string)) throw new Error(`the log holds ${name}`)
    }
    const get = await http(this.port, 'GET', '/provision/config/port', { token: this.tokens.m1, headers: { 'Cache-Control': 'no-cache' } })
    if (get.body !== '8080') throw new Error(`a good get is answered ${get.status} ${get.body}`)
    const socket = await ws(this.owner, this.port, { token: this.tokens.m2 })
    const watched = await socket.watch('config', 'port')
    socket.end()
    if (watched.result?.value !== 9090) throw new Error(`a good watch is answered ${watched.raw}`)
  }

  /** What the process holds now; undefined where the system does not say. */
  #held (): Held | undefined {
    const of = `/proc/${this.gateway.process.pid}`
    try {
      const [, pages = '0'] = readFileSync(`${of}/statm`, 'utf8').split(' ')
      return { fds: readdirSync(`${of}/fd`).length, rss: Number(pages) * 4096 / 2 ** 20 }
    } catch { return undefined }
  }

  /** Called once all is warm: what the process holds from here on must not grow. */
  remember (): void { this.#before = this.#held() }

  /** Throws where the process holds more than it may: every connection is closed, and memory is as it was, generously. */
  async assertNotGrown (): Promise<string> {
    const before = this.#before
    if (!before || !this.#held()) return 'not measured'
    const fits = (): boolean => (this.#held()?.fds ?? 0) <= before.fds + 3
    if (!await until(fits, 10_000, 100)) throw new Error(`the gateway holds ${this.#held()?.fds} handles, ${before.fds} before`)
    const after = this.#held() as Held
    if (after.rss > before.rss + 200) throw new Error(`the gateway takes ${Math.round(after.rss)} MiB, ${Math.round(before.rss)} before`)
    return `handles ${before.fds} → ${after.fds}, memory ${Math.round(before.rss)} → ${Math.round(after.rss)} MiB`
  }
}
