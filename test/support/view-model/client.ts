/** A connection as any transport has it: gets, and watches that are attached before they are asked (DESIGN section 7). */
import { MeshError } from '../../../src/core/errors.js'
import type { ValueName } from '../../../src/core/names.js'
import type { Entry, Watcher } from '../../../src/core/provision/entry.js'
import { Reader } from '../../../src/core/provision/reader.js'
import type { View } from '../../../src/core/provision/view.js'
import { contentOf, type Arrival, type Cursors, type Ledger } from './ledger.js'
import { idOf, type Content } from './mesh.js'

export class Client {
  readonly watches = new Map<string, Watched>()
  readonly gets = new Set<Arrival>()
  readonly cursors: Cursors = new Map()
  /** It does not read: what is to be told is skipped until it does. */
  slow = false
  #ended = false

  constructor (readonly view: View, readonly ledger: Ledger) {}

  /** Resolves with what was handed, or undefined where the get failed or nobody was left to hand it to. */
  get (name: ValueName, noCache: boolean): Promise<Content | undefined> { return this.#answered(this.ledger.arrives(name, noCache)) }

  async #answered (arrival: Arrival): Promise<Content | undefined> {
    const { name, noCache } = arrival
    this.gets.add(arrival)
    try {
      const { said } = (noCache ? undefined : this.view.peek(name)) ?? await this.view.read(name, { noCache })
      if (this.#ended) return undefined
      if (!said) throw new Error(`a get of ${idOf(name)} was answered nothing`)
      const content = contentOf(said)
      this.ledger.got(arrival, content)
      this.ledger.handed(this.cursors, name, content)
      return content
    } catch (error) {
      if (!(error instanceof MeshError)) this.ledger.wrong(String(error))
      else if (!this.#ended) this.ledger.gotNothing(arrival, error.problem)
      return undefined
    } finally {
      this.gets.delete(arrival)
    }
  }

  async watch (name: ValueName, keep: boolean): Promise<void> {
    if (this.watches.has(idOf(name))) return
    const arrival = this.ledger.arrives(name, false)
    const watched = new Watched(name, this)
    this.watches.set(idOf(name), watched)
    const content = await this.#answered(arrival)
    // Unwatched while it was asked: it is answered, and nothing follows.
    if (watched.ended) return
    if (!keep && (content === undefined || content.startsWith('!'))) this.unwatch(name)
    else watched.begin(content)
  }

  unwatch (name: ValueName): void {
    this.watches.get(idOf(name))?.end()
    this.watches.delete(idOf(name))
  }

  readAgain (): void {
    this.slow = false
    for (const watched of this.watches.values()) watched.sync(watched.entry)
  }

  end (): void {
    this.#ended = true
    for (const { name } of this.watches.values()) this.unwatch(name)
  }
}

export class Watched implements Watcher {
  readonly entry: Entry
  /** What it was handed last, and whether it was told nothing worse since. */
  handed: Content | undefined
  live = true
  begun = false
  ended = false
  /** How much it was told. */
  frames = 0
  /** Since when no provisioner has what it was handed, in ms; kept by whoever checks. */
  outSince: number | undefined
  readonly #reader = new Reader()

  constructor (readonly name: ValueName, private readonly client: Client) { this.entry = client.view.attach(name, this) }

  /** The response went out, with this content or with none. */
  begin (content: Content | undefined): void {
    this.begun = true
    this.handed = content
    if (content === undefined) this.live = this.#reader.live = false
    else this.#reader.handed = this.entry.said?.id
    this.sync(this.entry)
  }

  sync (entry: Entry): void {
    if (this.ended) return this.client.ledger.wrong(`${idOf(this.name)} is told to a watch that ended`)
    if (this.begun && !this.client.slow) this.#tell(entry)
  }

  end (): void {
    this.client.view.detach(this.entry, this)
    this.ended = true
  }

  #tell (entry: Entry): void {
    const { ledger, cursors } = this.client
    const due = this.#reader.due(entry)
    const id = idOf(this.name)
    if (due === undefined) return
    this.frames++
    if (due === 'stale') {
      if (!this.live) ledger.wrong(`${id} is said stale twice`)
      this.live = false
      ledger.stales++
      return
    }
    if (ledger.hearing === undefined) ledger.wrong(`${id} is handed as current though no change is heard`)
    if (due === 'live' && this.live) ledger.wrong(`${id} is said live twice`)
    this.live = true
    if (due === 'live') return
    const content = contentOf(entry.said as NonNullable<Entry['said']>)
    if (content === this.handed) ledger.wrong(`${id} is handed ${content} twice in a row`)
    this.handed = content
    ledger.handed(cursors, this.name, content)
  }
}
