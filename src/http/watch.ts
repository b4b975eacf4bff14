import type { ValueName } from '../core/names.js'
import type { Entry, Watcher } from '../core/provision/entry.js'
import { Reader } from '../core/provision/reader.js'
import type { View } from '../core/provision/view.js'
import { changed, notification, sharedChange } from './frames.js'

/** The connection that a watch speaks on. */
export interface Speaker {
  send (frame: Buffer): void
  /** Whether so much is unsent that more would only pile up. */
  crowded (): boolean
  /** The watch has something to say that there is no room for: it is called back once there is. */
  wait (watch: Watch): void
  /** It became stale (+1) or current again (-1). */
  countStale (by: 1 | -1): void
}

/** One value watched on one connection. It is attached before it is asked, so that no change falls between. */
export class Watch implements Watcher {
  /** A call was answered with success (or kept): it stands until it is unwatched. */
  confirmed = false
  readonly #entry: Entry
  readonly #reader = new Reader()
  #pending = 0
  /** Nothing is told before the response of the call that began it. */
  #begun = false
  #dropped = false
  /** Changes that were not handed because the client does not read, and the newest of them. */
  #skipped = 0
  #newest: string | undefined

  constructor (readonly name: ValueName, private readonly session: Speaker, private readonly view: View) {
    this.#entry = view.attach(name, this)
  }

  asked (): void { this.#pending++ }
  answered (): void { this.#pending-- }
  confirm (): void { if (!this.#dropped) this.confirmed = true }
  /** Whether another call for this value is still being answered. */
  get pending (): boolean { return this.#pending > 0 }

  /** The response went out, and handed what has this id (undefined: nothing): from here on changes are told. */
  begin (handed: string | undefined): void {
    if (this.#dropped || !this.confirmed) return
    const first = !this.#begun
    this.#begun = true
    if (handed === undefined) {
      // The answer said that the value is unavailable, which is as good as stale.
      if (first && this.#reader.live) {
        this.#reader.live = false
        this.session.countStale(1)
      }
    } else this.#reader.handed = handed
    this.sync(this.#entry)
  }

  sync (entry: Entry): void {
    if (!this.#begun || this.#dropped) return
    if (this.session.crowded()) {
      this.#skip(entry)
      return
    }
    this.#tell(entry)
  }

  /** There is room again: what stands now is said, and how many were skipped. */
  catchUp (): void {
    if (!this.#dropped) this.#tell(this.#entry)
  }

  /** Ends it; false where it had ended. */
  drop (): boolean {
    if (this.#dropped) return false
    this.#dropped = true
    this.view.detach(this.#entry, this)
    if (!this.#reader.live) this.session.countStale(-1)
    return true
  }

  #skip ({ said }: Entry): void {
    if (said && said.id !== this.#reader.handed && said.id !== this.#newest) {
      this.#newest = said.id
      this.#skipped++
    }
    this.session.wait(this)
  }

  #tell (entry: Entry): void {
    const { live } = this.#reader
    const said = entry.said
    switch (this.#reader.due(entry)) {
      case 'said': {
        if (!said) return
        // Of those skipped the newest is the one handed now.
        const skipped = Math.max(0, this.#skipped - 1)
        this.#skipped = 0
        this.#newest = undefined
        this.session.send(skipped > 0 ? changed(this.name, said, skipped) : sharedChange(this.name, said))
        break
      }
      case 'stale':
        this.session.send(notification('provision.stale', { ...this.#named(), since: new Date(entry.staleSince as number).toISOString() }))
        break
      case 'live':
        this.session.send(notification('provision.live', this.#named()))
        break
    }
    if (live !== this.#reader.live) this.session.countStale(live ? 1 : -1)
  }

  #named (): { kind: string, key: string } { return { kind: this.name.kind, key: this.name.key } }
}
