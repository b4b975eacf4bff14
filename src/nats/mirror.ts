/** A copy of the buckets in memory, for those who look at the mesh's state: made when one asks, let go when nobody does. */
import type { NatsConnection } from 'nats'
import { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { bucketNames, type BucketName } from '../core/ports.js'
import { Picture } from '../core/state/picture.js'
import type { Log } from './connection.js'
import { follow, type Following } from './follow.js'

/** The keys of each bucket that have a meaning. Of builds only the keys are looked at: all manifests ever built are many. */
const filters: Record<BucketName, string> = {
  trunk: '*', builds: 'done.*.*', inventory: '*.*', settings: '*', compositions: '*.*', grants: '*.*', takeins: '*'
}

export class Mirror {
  #nc: NatsConnection | undefined
  #picture = new Picture()
  #followings: Following[] = []
  /** Buckets that are followed now, nothing left out. */
  readonly #current = new Set<BucketName>()
  /** Why a bucket cannot be followed. */
  readonly #trouble = new Map<BucketName, string>()
  readonly #waiting = new Set<() => void>()
  #idle: NodeJS.Timeout | undefined
  #tooLarge = false

  constructor (
    private readonly prefix: string, private readonly log: Log,
    private readonly bounds: { idleMs: number, characters: number } = { idleMs: limits.pictureIdleMs, characters: limits.pictureCharacters }
  ) {}

  /** The bus is there. Another connection than before is followed from the start, once somebody asks. */
  up (nc: NatsConnection): void {
    if (this.#nc !== nc) void this.#letGo()
    this.#nc = nc
  }

  /** The bus is away: what is known may be old, until each bucket is followed again. */
  down (): void { this.#current.clear() }

  async stop (): Promise<void> {
    this.#nc = undefined
    await this.#letGo()
  }

  /** The copy, while it is current. Rejects with `unavailable` where it does not become so in a moment. */
  async picture (): Promise<Picture> {
    if (!this.#nc) throw new MeshError('unavailable', 'the gateway is not connected to the bus')
    if (!this.#tooLarge) this.#keep()
    if (!this.#tooLarge && this.#followings.length === 0) this.#begin(this.#nc)
    if (!this.#isCurrent()) await this.#change()
    if (this.#tooLarge) throw new MeshError('unavailable', `the buckets hold more than ${this.bounds.characters} characters, which is more than the state keeps in memory`)
    if (!this.#isCurrent()) throw new MeshError('unavailable', [...this.#trouble.values()][0] ?? 'the buckets are still being read: ask again in a moment')
    return this.#picture
  }

  #isCurrent (): boolean { return this.#current.size === bucketNames.length }

  /** Nobody asked for a while: an idle gateway holds no copy. */
  #keep (): void {
    if (this.#idle) this.#idle.refresh()
    else this.#idle = setTimeout(() => { void this.#letGo() }, this.bounds.idleMs).unref()
  }

  #begin (nc: NatsConnection): void {
    const picture = this.#picture
    this.#followings = bucketNames.map((bucket) => {
      const is = (current: boolean): void => {
        // What belongs to a copy that was let go says nothing of this one.
        if (picture !== this.#picture) return
        if (current) {
          this.#current.add(bucket)
          this.#trouble.delete(bucket)
          if (this.#isCurrent()) this.#tell()
        } else this.#current.delete(bucket)
      }
      return follow(nc, { prefix: this.prefix, bucket, filter: filters[bucket], keysOnly: bucket === 'builds' }, {
        anew: (epoch) => {
          is(false)
          picture.anew(bucket, epoch)
        },
        entry: (entry) => {
          picture.entry(bucket, entry)
          if (picture.characters > this.bounds.characters && picture === this.#picture) this.#giveUp()
        },
        ready: () => is(true),
        resumed: () => is(true),
        trouble: (why) => {
          is(false)
          if (picture === this.#picture) this.#trouble.set(bucket, why)
          // Nobody waits for what is not about to come.
          this.#tell()
          this.log.warn({ why }, 'the buckets cannot be followed for the state; trying on')
        }
      })
    })
  }

  /** Until the idle time is over, nothing is read again. */
  #giveUp (): void {
    this.log.error({ characters: this.bounds.characters }, 'the buckets are too large for the state to be kept in memory')
    void this.#letGo()
    this.#tooLarge = true
    this.#keep()
    this.#tell()
  }

  async #letGo (): Promise<void> {
    clearTimeout(this.#idle)
    this.#idle = undefined
    const followings = this.#followings
    this.#followings = []
    this.#picture = new Picture()
    this.#current.clear()
    this.#trouble.clear()
    this.#tooLarge = false
    await Promise.all(followings.map((one) => one.stop()))
  }

  #tell (): void { for (const tell of [...this.#waiting]) tell() }

  /** Until the copy is current or given up, but not for long. */
  async #change (): Promise<void> {
    if (this.#tooLarge || this.#trouble.size > 0) return
    await new Promise<void>((resolve) => {
      const tell = (): void => {
        clearTimeout(timer)
        this.#waiting.delete(tell)
        resolve()
      }
      const timer = setTimeout(tell, limits.pictureMs)
      this.#waiting.add(tell)
    })
  }
}
