/** The bus side of a gateway, joined: core's ports on one connection, kept through every reconnect. */
import { setTimeout as pause } from 'node:timers/promises'
import type { NatsConnection } from 'nats'
import type { Environment } from '../config.js'
import type { Core, Health } from '../core/core.js'
import { MeshError, messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { BucketName, Store } from '../core/ports.js'
import { View } from '../core/provision/view.js'
import { SettingsDesk } from '../core/settings/settings.js'
import { MeshState } from '../core/state/mesh-state.js'
import { OwnWrites, telling } from '../core/take-in/own-writes.js'
import { TakeIns } from '../core/take-in/take-ins.js'
import { Asker } from './asker.js'
import { NatsBrokers } from './brokers.js'
import { ensureBuckets, NatsStore, Refused } from './buckets.js'
import { Bus } from './bus.js'
import type { Log } from './connection.js'
import { makeCredential } from './credentials.js'
import type { Following } from './follow.js'
import { Ear } from './hearing.js'
import { readHistory } from './history.js'
import { Mirror } from './mirror.js'
import { ProvisionerClient } from './provisioner-client.js'
import { SameBuckets } from './same-buckets.js'
import { wakeOnKeys } from './wake-watch.js'

const sleep = async (ms: number): Promise<void> => { await pause(ms) }

export class Mesh implements Core {
  readonly view: View
  readonly takeIns: TakeIns
  readonly state: MeshState
  readonly settings: SettingsDesk
  readonly #mirror: Mirror
  readonly #bus: Bus
  readonly #ear: Ear
  readonly #own = new OwnWrites()
  #asker: Asker | undefined
  /** Asks of broker agents have an inbox of their own: who answers values must not know where an agent's answer is awaited. */
  #brokerAsker: Asker | undefined
  #store: Store | undefined
  #waking: Following | undefined
  /** Buckets that are missing; undefined until somebody looked. */
  #missing: BucketName[] | undefined
  /** Why the bus's user may not look at the buckets: this gateway serves values alone. */
  #refused: string | undefined
  /** Why the buckets could not be looked at the last time. */
  #unseen = ''
  /** The buckets that take-ins write, and whose keys wake nobody. */
  readonly #written: SameBuckets
  #ticking: NodeJS.Timeout | undefined
  #looking: NodeJS.Timeout | undefined
  #stopped = false
  #drained: Promise<unknown> | undefined

  constructor (private readonly config: Environment, private readonly log: Log) {
    const node = config.MESH_NODE as string
    const asker = (): Asker | undefined => this.#bus.connection ? this.#asker : undefined
    this.#bus = new Bus(config, `mesh-gateway ${node}`, log)
    this.view = new View({
      provisioner: new ProvisionerClient(node, config.ASK_TIMEOUT_MS, asker),
      now: Date.now,
      defer: setImmediate,
      random: Math.random,
      askTimeoutMs: config.ASK_TIMEOUT_MS,
      rewound: ({ module, kind }) => log.warn({ module, kind }, 'the compositions were rewound: an older answer that stands is handed')
    })
    this.#ear = new Ear(node, this.view, log)
    const patience = { now: Date.now, random: Math.random, pause: sleep }
    this.takeIns = new TakeIns({
      store: () => this.#reachable(),
      brokers: new NatsBrokers(() => this.#bus.connection ? this.#brokerAsker : undefined, sleep),
      makeCredential,
      patience,
      ended: (result, failed, by) => {
        const { module, outcome, said, composed, steps } = result
        const ms = steps.reduce((sum, step) => sum + step.ms, 0)
        if (failed) log.error({ module, by, step: failed.step, why: failed.message, ms }, 'take-in failed')
        else log.info({ module, by, outcome, composed, ms }, `take-in: ${said}`)
      },
      trouble: (module, error) => log.error({ module, why: messageOf(error) }, 'take-in'),
      released: (module, why) => this.#wake(module, why)
    })
    const forChange = (): Store => {
      // Not written at all, rather than written and not taken in.
      if (this.#stopped) throw new MeshError('unavailable', 'this gateway is going down: ask another, or again in a moment')
      return this.#reachable()
    }
    this.settings = new SettingsDesk({ store: forChange, takeIns: this.takeIns, patience })
    this.#written = new SameBuckets(config.MESH_PREFIX, ['compositions', 'grants'])
    this.#mirror = new Mirror(config.MESH_PREFIX, log)
    this.state = new MeshState({
      picture: async () => {
        this.#reachable()
        return this.#mirror.picture()
      },
      history: async (bucket, key) => {
        this.#reachable()
        return readHistory(this.#bus.connection as NatsConnection, config.MESH_PREFIX, bucket, key)
      }
    })
  }

  start (): void {
    this.#ticking = setInterval(() => this.view.tick(), limits.viewTickMs)
    this.#bus.listen({ up: (nc) => this.#up(nc), down: () => this.#down() })
    this.#bus.start()
  }

  /**
   * Is not ready from now on and begins no take-in; what is asked besides is answered as before, until `stop`. Resolves when the runs that
   * go on have ended. One that half of the draining time is too short for, since the bus is away, say, is left.
   */
  async drain (): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#looking)
    // What is left is what a crash leaves: the next run goes on from there.
    this.#drained ??= Promise.race([Promise.allSettled([this.takeIns.stop(), this.#waking?.stop()]), sleep(this.config.DRAIN_MS / 2)])
    await this.#drained
  }

  /** Ends what runs, as `drain` does, then the connection: nothing is answered any more. */
  async stop (): Promise<void> {
    await this.drain()
    await Promise.race([this.#mirror.stop(), sleep(limits.drainGracePart * this.config.DRAIN_MS)])
    this.#ear.stop()
    clearInterval(this.#ticking)
    this.#asker?.close()
    this.#brokerAsker?.close()
    await this.#bus.stop()
  }

  health (): Health {
    const bus = this.#bus.connection !== undefined
    const buckets = bus && this.#missing?.length === 0
    const { hearing } = this.view
    const serves = buckets || (bus && this.#refused !== undefined)
    return { ready: bus && serves && hearing && !this.#stopped, bus, hearing, buckets, missing: this.#missing ?? [] }
  }

  #up (nc: NatsConnection): void {
    if (this.#store === undefined || this.#asker?.connection !== nc) {
      this.#asker?.close()
      this.#asker = new Asker(nc)
      this.#brokerAsker?.close()
      this.#brokerAsker = new Asker(nc)
      this.#store = this.#storeOn(nc)
      void this.#waking?.stop()
      this.#waking = undefined
    }
    this.#ear.up(nc)
    this.#mirror.up(nc)
    this.#refused = undefined
    void this.#lookAtBuckets()
  }

  #down (): void {
    this.#asker?.fail()
    this.#brokerAsker?.fail()
    this.#ear.down()
    this.#mirror.down()
  }

  #storeOn (nc: NatsConnection): Store {
    const store = new NatsStore(nc, this.config.MESH_PREFIX)
    return this.#own.around(telling(store, (bucket, key, revision) => this.#written.wrote(bucket, key, revision)))
  }

  /** The buckets, or why nothing can be taken in now. */
  #reachable (): Store {
    if (!this.#bus.connection || !this.#store) throw new MeshError('unavailable', 'the gateway is not connected to the bus')
    if (this.#refused !== undefined) throw new MeshError('unavailable', `this gateway's user on the bus may not take in (${this.#refused}): give it the rights of "mesh-gateway rights take-in"`)
    if (this.#missing === undefined) throw new MeshError('unavailable', 'the buckets were not seen yet: ask again in a moment')
    if (this.#missing.length > 0) throw new MeshError('unavailable', missingSentence(this.config.MESH_PREFIX, this.#missing))
    return this.#store
  }

  /** Looks at the buckets now, and from then on again and again. */
  async #lookAtBuckets (): Promise<void> {
    const nc = this.#bus.connection
    if (!nc || this.#stopped) return
    const againMs = await this.#look(nc)
    // One that began while this one ran has set the timer already; there is only one.
    clearTimeout(this.#looking)
    if (!this.#stopped) this.#looking = setTimeout(() => { void this.#lookAtBuckets() }, againMs)
  }

  /** Sees that the buckets are there, and makes them where that is right (DESIGN section 5). Answers in how many ms to look again. */
  async #look (nc: NatsConnection): Promise<number> {
    const before = this.#missing?.join()
    try {
      const { MESH_PREFIX: prefix, KV_REPLICAS: replicas } = this.config
      this.#missing = await ensureBuckets(nc, { prefix, replicas })
      await this.#lookWhetherAnew(nc)
      this.#refused = undefined
      this.#unseen = ''
    } catch (error) {
      return this.#notSeen(error)
    }
    if (this.#missing.length > 0) {
      if (this.#missing.join() !== before) this.log.error({}, missingSentence(this.config.MESH_PREFIX, this.#missing))
      // What wakes meanwhile is turned away; once the buckets are there again, every module is looked at.
      void this.#waking?.stop()
      this.#waking = undefined
    }
    if (this.#missing.length === 0 && !this.#waking && !this.#stopped) {
      this.#waking = wakeOnKeys(nc, this.config.MESH_PREFIX, {
        wake: (module, why) => this.#wake(module, why),
        isOwn: (bucket, entry) => this.#own.has(bucket, entry)
      }, this.log)
    }
    return limits.bucketsLookMs
  }

  /** Without TAKE_IN=auto only what somebody waits for is woken. */
  #wake (module: string, why: string): void {
    if (this.config.TAKE_IN === 'auto' || this.takeIns.awaited(module)) this.takeIns.wake(module, why)
  }

  /** The buckets could not be looked at: an accident that passes, or a user without the rights of a take-in, who may serve values all the same. */
  #notSeen (error: unknown): number {
    const why = messageOf(error)
    this.#refused = error instanceof Refused ? why : undefined
    if (why !== this.#unseen) {
      this.log.warn({ why }, this.#refused === undefined ? 'the buckets cannot be looked at; trying on' : 'this gateway serves values alone: its user on the bus may not take in')
    }
    this.#unseen = why
    if (this.#refused === undefined) return this.#missing === undefined ? limits.connectMs : limits.bucketsLookMs
    void this.#waking?.stop()
    this.#waking = undefined
    return limits.refusedLookMs
  }

  /**
   * A bucket that take-ins write was made anew, emptied or put back from an older copy: what was known of it counts no more, and every module
   * is looked at.
   */
  async #lookWhetherAnew (nc: NatsConnection): Promise<void> {
    if (this.#missing?.length !== 0) return
    const others = await this.#written.others(nc)
    if (others.length === 0) return
    this.log.warn({ buckets: others }, 'a bucket is not the one that it was: every module is looked at')
    this.#store = this.#storeOn(nc)
    this.takeIns.forget()
    void this.#waking?.stop()
    this.#waking = undefined
  }
}

const missingSentence = (prefix: string, missing: BucketName[]): string =>
  `missing though ${prefix}takeins stands: ${missing.map((bucket) => prefix + bucket).join(', ')}. Restore what was lost; nothing is made or composed until then`
