/** One value as server-sent events: what stands, each change, and word of whether it is current (DESIGN section 6). */
import type { ServerResponse } from 'node:http'
import { limits } from '../core/limits.js'
import type { ValueName } from '../core/names.js'
import type { Entry, Watcher } from '../core/provision/entry.js'
import { Reader } from '../core/provision/reader.js'
import type { Said } from '../core/provision/said.js'
import type { View } from '../core/provision/view.js'
import type { Principal } from '../identity/principal.js'
import type { Connection, Ending } from './sessions.js'
import { inKernelsWay } from './unsent.js'
import { Until } from './until.js'

/** Whether a request's `Accept` asks for events rather than for the value alone. */
export function wantsEvents (accept: string | undefined): boolean {
  if (accept === undefined || !accept.includes('text/event-stream')) return false
  const quality = (type: string): number => {
    const range = accept.split(',').map((one) => one.trim().toLowerCase()).find((one) => one === type || one.startsWith(`${type};`))
    return range === undefined ? -1 : Number(/;\s*q=([\d.]+)/.exec(range)?.[1] ?? 1)
  }
  const events = quality('text/event-stream')
  return events > 0 && events >= quality('application/json')
}

/** One event. A line end in its data would end the line, so each line of it has a `data` field of its own. */
function event (name: string, data: string, id?: string): Buffer {
  const lines = data.split(/\r\n|\n|\r/).map((line) => `data: ${line}\n`).join('')
  return Buffer.from(`event: ${name}\n${id === undefined ? '' : `id: ${id}\n`}${lines}\n`)
}

function saidEvent ({ kind, key }: ValueName, said: Said): Buffer {
  if ('refused' in said) return event('refused', JSON.stringify({ kind, key, refused: said.refused }), said.id)
  const value = Buffer.from(said.bytes).toString('utf8')
  return event('value', `{"kind":"${kind}","key":${JSON.stringify(key)},"value":${value},"etag":${JSON.stringify(said.etag)}}`, said.id)
}

/** One encoded event for all streams of a value: it is made once for each thing that is said of it. */
const encoded = new WeakMap<Said, Buffer>()
function sharedEvent (name: ValueName, said: Said): Buffer {
  let made = encoded.get(said)
  if (!made) encoded.set(said, made = saidEvent(name, said))
  return made
}

const comment = Buffer.from(':\n\n')

export interface StreamOptions {
  view: View
  principal: Principal
  name: ValueName
  /** `Last-Event-ID`: what the client was handed last. */
  lastEventId: string | undefined
  headers: Record<string, number | string | string[] | undefined>
}

export class EventStream implements Watcher, Connection {
  readonly #reader = new Reader()
  readonly #entry: Entry
  readonly #expiry = new Until(() => this.#close())
  #begun = false
  #ended = false
  #behind = false
  #commentAt = Date.now() + limits.commentMs

  constructor (private readonly response: ServerResponse, private readonly options: StreamOptions) {
    response.on('close', () => this.#release())
    response.on('drain', () => { if (this.#behind) this.sync(this.#entry) })
    response.writeHead(200, {
      ...options.headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'private, no-cache',
      // nginx and its kin would hold events back.
      'x-accel-buffering': 'no'
    })
    response.flushHeaders()
    this.#entry = options.view.attach(options.name, this)
    this.#expiry.set(options.principal.expiresAt)
    void this.#open()
  }

  sync (entry: Entry): void {
    if (!this.#begun || this.#ended) return
    this.#behind = this.response.writableLength > limits.unsentBytes
    if (!this.#behind) this.#tell(entry)
  }

  get principal (): Principal { return this.options.principal }

  unsent (): number { return this.response.writableLength + inKernelsWay(this.response.socket) }

  beat (now: number): void {
    if (now < this.#commentAt) return
    this.#write(comment)
  }

  end (why: Ending): void {
    // Some jitter, so that not all come back in one moment.
    if (why === 'draining') this.#write(Buffer.from(`retry: ${500 + Math.floor(Math.random() * limits.comeBackMs)}\n\n`))
    this.#close()
  }

  terminate (): void { this.response.destroy() }

  onClose (listener: () => void): void { this.response.once('close', listener) }

  /** A stream always opens with an event, whatever the value is just now. */
  async #open (): Promise<void> {
    const { view, name, lastEventId } = this.options
    try {
      if (!view.peek(name)) await view.read(name)
    } catch { /* said below: it is not known */ }
    if (this.#ended) return
    const { said, staleSince } = this.#entry
    this.#begun = true
    if (said && staleSince === undefined && said.id === lastEventId) {
      this.#reader.handed = said.id
      this.#reader.live = false // so that what is due is `live`
    } else if (!said && staleSince === undefined) {
      this.#reader.live = false
      this.#stale(Date.now())
    }
    this.sync(this.#entry)
  }

  #tell (entry: Entry): void {
    const { name } = this.options
    switch (this.#reader.due(entry)) {
      case 'said': return entry.said && this.#write(sharedEvent(name, entry.said))
      case 'stale': return this.#stale(entry.staleSince as number)
      case 'live': return this.#write(event('live', JSON.stringify({ kind: name.kind, key: name.key })))
    }
  }

  #stale (since: number): void {
    const { kind, key } = this.options.name
    this.#write(event('stale', JSON.stringify({ kind, key, since: new Date(since).toISOString() })))
  }

  #write (bytes: Buffer): void {
    if (this.#ended) return
    this.#commentAt = Date.now() + limits.commentMs
    this.response.write(bytes)
  }

  #close (): void {
    if (this.#ended) return
    this.#release()
    this.response.end()
  }

  #release (): void {
    if (this.#ended) return
    this.#ended = true
    this.#expiry.clear()
    this.options.view.detach(this.#entry, this)
  }
}
