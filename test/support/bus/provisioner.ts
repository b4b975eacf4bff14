/** A stand-in for a node's provisioner: answers as told, and keeps what it was asked. */
import { headers, type Msg, type NatsConnection } from 'nats'
import { parseRevision } from '../../../src/core/revision.js'
import { atEnd, type Owner } from '../owner.js'
import { pause } from '../until.js'
import { decodeJson, encode } from './client.js'

/** What is said to an ask. */
export interface Told {
  /** Any JSON. */
  value?: unknown
  /** Instead of `value`: the reply's bytes as they are. */
  raw?: string | Uint8Array
  /** A refusal's reason, and its code: 403 unless told. */
  refused?: string
  code?: number
  silent?: boolean
  /** ms until it is sent. */
  delay?: number | (() => number)
  /** The answer that stands when the ask arrives is sent, not the one that stands when it is sent. */
  snap?: boolean
  /** Its Mesh-Revision: a number of this epoch, a text as it is, or null for no such header. */
  rev?: number | string | null
}

export interface Asked { module: string, kind: string, key: string, subject: string, at: number }

type Reply = Parameters<Msg['respond']>

/** `module/kind/key` in its parts; the key may hold slashes. */
function partsOf (name: string): [string, string, string] {
  const [module = '', kind = '', ...key] = name.split('/')
  return [module, kind, key.join('/')]
}

export interface ProvisionerOptions { node?: string, epoch?: number, queue?: string }

/**
 * Answers live under the name `module/kind/key`. Mesh-Revision is that of the module's composition, as it would be in the
 * bucket: the epoch, and a number that `set` and `unset` raise; for a module without one the last number given out.
 */
export class StandInProvisioner {
  readonly answers = new Map<string, Told>()
  readonly asked: Asked[] = []
  readonly listed: string[] = []
  inFlight = 0
  maxInFlight = 0
  /** Answers nothing at all. */
  mute = false
  /** What is said of a name that has no answer; without it such a name is not declared. */
  fallback: ((name: string) => Told | undefined) | undefined
  readonly node: string
  epoch: number
  #last = 1
  readonly #revisions = new Map<string, number>()
  #subscriptions: Array<{ unsubscribe (): void }> = []

  constructor (readonly nc: NatsConnection, readonly options: ProvisionerOptions = {}) {
    this.node = options.node ?? 'node-a'
    this.epoch = options.epoch ?? Date.now()
  }

  /** Listens; resolves when the server knows. */
  async start (): Promise<this> {
    const queue = this.options.queue ?? 'q'
    const listen = (what: string, serve: (ask: Msg) => unknown) => this.nc.subscribe(`mesh.provision.${this.node}.*.${what}`, {
      queue, callback: (error, ask) => { if (!error) void serve(ask) }
    })
    this.#subscriptions = [listen('get', (ask) => this.#get(ask)), listen('list', (ask) => this.#list(ask))]
    await this.nc.flush()
    return this
  }

  stop (): void { for (const subscription of this.#subscriptions.splice(0)) subscription.unsubscribe() }

  set (name: string, told: Told): this {
    this.answers.set(name, told)
    this.#moved(name)
    return this
  }

  unset (name: string): this {
    this.answers.delete(name)
    this.#moved(name)
    return this
  }

  /** Says the word that a value moved, or without a key all of the kind, with the revision that stands unless told. */
  tell (module: string, kind: string, key?: string, rev?: string): void {
    const said = headers()
    const own = this.#revision(module, this.answers.get(`${module}/${kind}/${key}`))
    said.set('Mesh-Revision', rev ?? (own !== null && parseRevision(own) ? own : this.#revision(module) as string))
    this.nc.publish(`mesh.provision.${this.node}.${module}.changed`, encode(JSON.stringify({ kind, key })), { headers: said })
  }

  /** Sets an answer and says the word. */
  change (name: string, told: Told): void {
    this.set(name, told)
    this.tell(...partsOf(name))
  }

  /** How often a name was asked (or anything), since a time. */
  askedOf (name?: string, since = 0): number {
    return this.asked.filter((ask) => ask.at >= since && (name === undefined || `${ask.module}/${ask.kind}/${ask.key}` === name)).length
  }

  #moved (name: string): void { this.#revisions.set(partsOf(name)[0], ++this.#last) }

  #revision (module: string, told?: Told): string | null {
    if (told?.rev !== undefined) return typeof told.rev === 'number' ? `${this.epoch}.${told.rev}` : told.rev
    return `${this.epoch}.${this.#revisions.get(module) ?? this.#last}`
  }

  #reply (module: string, told: Told = { refused: 'no such value', code: 404 }): Reply {
    const said = headers()
    const revision = this.#revision(module, told)
    if (revision !== null) said.set('Mesh-Revision', revision)
    if (told.refused !== undefined || told.code !== undefined) {
      said.set('Nats-Service-Error-Code', String(told.code ?? 403))
      said.set('Nats-Service-Error', told.refused ?? '')
      return [new Uint8Array(0), { headers: said }]
    }
    const content = told.raw ?? JSON.stringify(told.value)
    return [typeof content === 'string' ? encode(content) : content, { headers: said }]
  }

  async #get (ask: Msg): Promise<void> {
    const module = ask.subject.split('.')[3] ?? ''
    const { kind, key } = decodeJson(ask.data) ?? {}
    const name = `${module}/${kind}/${key}`
    const stands = () => this.answers.get(name) ?? this.fallback?.(name)
    this.asked.push({ module, kind, key, subject: ask.subject, at: Date.now() })
    this.maxInFlight = Math.max(this.maxInFlight, ++this.inFlight)
    const told = stands()
    const early = told?.snap ? this.#reply(module, told) : undefined
    const delay = typeof told?.delay === 'function' ? told.delay() : told?.delay ?? 0
    if (delay > 0) await pause(delay)
    this.inFlight--
    if (this.mute || this.nc.isClosed() || told?.silent || (!early && stands()?.silent)) return
    ask.respond(...(early ?? this.#reply(module, stands())))
  }

  #list (ask: Msg): void {
    const module = ask.subject.split('.')[3] ?? ''
    this.listed.push(module)
    if (this.mute) return
    const declared = [...this.answers].filter(([, told]) => told.code !== 404).map(([name]) => partsOf(name))
    const keys = (kind: string) => declared.filter((parts) => parts[0] === module && parts[1] === kind).map((parts) => parts[2])
    const said = headers()
    said.set('Mesh-Revision', this.#revision(module) as string)
    ask.respond(encode(JSON.stringify({ config: keys('config'), bound: keys('bound') })), { headers: said })
  }
}

/** A stand-in provisioner that is listening. */
export async function provisioner (t: Owner, nc: NatsConnection, options: ProvisionerOptions = {}): Promise<StandInProvisioner> {
  const made = new StandInProvisioner(nc, options)
  atEnd(t, () => made.stop())
  return made.start()
}
