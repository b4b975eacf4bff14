/** A view in a world that is held by hand: clock, bus, provisioners, readers. Everything follows from the steps and one number. */
import { setImmediate as turn } from 'node:timers/promises'
import { limits } from '../../../src/core/limits.js'
import type { ValueName } from '../../../src/core/names.js'
import { View } from '../../../src/core/provision/view.js'
import { Bus } from './bus.js'
import { Client, type Watched } from './client.js'
import { Ledger } from './ledger.js'
import { idOf, Mesh, type Content, names as someNames } from './mesh.js'
import { clients, type Flow, type Step } from './steps.js'

export const askTimeoutMs = 2000
/** A watch is out of date for no longer than this without being told (DESIGN section 2: silence, an ask, a tick). */
const untoldMs = limits.probeAfterMs + askTimeoutMs + 3 * limits.viewTickMs

/** Numbers between 0 and 1 that follow from a seed (mulberry32). */
function numbers (seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

export class Driver {
  readonly mesh: Mesh
  readonly ledger: Ledger
  readonly bus: Bus
  readonly view: View
  clients: Client[]
  #crowd: Client[] = []
  #now = 1_000_000
  #deferred: Array<() => void> = []
  #known = new Set<string>()
  /** Since when all is well, in ms. */
  #wellSince: number | undefined

  constructor (seed: number, readonly names: readonly ValueName[] = someNames) {
    const random = numbers(seed)
    const now = (): number => this.#now
    this.mesh = new Mesh(names, this.#now)
    this.ledger = new Ledger(now, askTimeoutMs)
    this.bus = new Bus({ mesh: this.mesh, ledger: this.ledger, now, random, askTimeoutMs })
    this.view = new View({
      provisioner: this.bus,
      now,
      random,
      defer: (work) => { this.#deferred.push(work) },
      askTimeoutMs,
      rewound: (name) => this.ledger.rewound(name)
    })
    this.bus.confirm(this.view)
    this.clients = Array.from({ length: clients }, () => this.#client())
  }

  /** With everything well, all is current after this: the longest pause, ticks; and a rewound bucket is believed after 5 s. */
  get convergesMs (): number {
    return limits.reaskLongestMs + 3 * limits.viewTickMs + (this.mesh.restarted ? limits.rewoundAfterMs : 0)
  }

  get readers (): Client[] { return [...this.clients, ...this.#crowd] }
  get watches (): Watched[] { return this.readers.flatMap((client) => [...client.watches.values()]) }
  get frames (): number { return this.watches.reduce((sum, { frames }) => sum + frames, 0) }
  name (at: number): ValueName { return this.names[at % this.names.length] as ValueName }

  async run (steps: Step[]): Promise<void> {
    for (const step of steps) {
      this.#wellSince = undefined
      this.#do(step)
      await this.#settle()
      if (step.do === 'pass') await this.pass(step.ms, step.flow)
      this.#check()
    }
  }

  /** Time goes by, tick by tick; what flows meanwhile is answered, followed and said at once. */
  async pass (ms: number, flow: Flow, stepMs: number = limits.viewTickMs): Promise<void> {
    for (const end = this.#now + ms; this.#now < end;) {
      this.#now += stepMs
      this.bus.expire()
      this.view.tick()
      await this.#flow(flow)
      const well = flow === 'all' && this.bus.link === 'up' && this.ledger.hearing !== undefined && this.bus.faults.size === 0 &&
        this.mesh.settled && this.bus.quiet
      this.#wellSince = well ? this.#wellSince ?? this.#now : undefined
      this.#check()
    }
  }

  /** Everything that flows is let through, and no time goes by. */
  async #flow (flow: Flow): Promise<void> {
    for (let rounds = 0, before = -1; before !== this.ledger.asks; rounds++) {
      if (rounds > 10) throw new Error('the view asks without end')
      before = this.ledger.asks
      if (flow === 'all') {
        for (const by of [0, 1]) {
          if (this.mesh.followers[by]?.life === 'up') this.bus.say(by, this.mesh.apply(by, Infinity, false))
          this.bus.hear(this.view, by, Infinity)
        }
      }
      if (flow !== 'nothing') this.bus.serveAll()
      await this.#settle()
      while (this.#deferred.length > 0) this.#turn()
    }
  }

  letThrough (): Promise<void> { return this.#flow('all') }

  /** The bus, the provisioners and the readers are all well again. */
  async heal (): Promise<void> {
    this.bus.faults.clear()
    if (this.bus.link === 'mute') this.bus.link = 'up'
    this.bus.reconnect()
    this.bus.confirm(this.view)
    for (const [by, { life }] of this.mesh.followers.entries()) {
      if (life === 'gone') this.bus.say(by, this.mesh.rise(by, 0))
      if (life === 'mute') (this.mesh.followers[by] as { life: string }).life = 'up'
    }
    for (const client of this.readers) client.readAgain()
    await this.#settle()
  }

  async leave (): Promise<void> {
    for (const client of this.readers) client.end()
    this.#crowd = []
    this.clients = []
    await this.#settle()
  }

  /** Every watch is live and has what stands, and so does each get. */
  async expectConverged (): Promise<void> {
    for (const watched of this.watches) {
      const stands = this.mesh.content(watched.name)
      if (!watched.live || watched.handed !== stands) {
        throw new Error(`a watch of ${idOf(watched.name)} ${watched.live ? '' : 'is stale and '}has ${watched.handed}, but ${stands} stands`)
      }
    }
    const watched = new Set(this.watches.map(({ name }) => idOf(name)))
    for (const name of this.names) {
      const stands = this.mesh.content(name)
      for (const noCache of [false, true]) {
        let got = this.#get(name, noCache)
        await this.letThrough()
        // What nobody watched may have to be asked until a rewound bucket is believed; what is watched is known.
        for (let tries = 0; !watched.has(idOf(name)) && got.content !== stands && tries < 5; tries++) {
          await this.pass(askTimeoutMs, 'all')
          if (got.ended) got = this.#get(name, noCache)
        }
        await this.letThrough()
        if (got.content !== stands) throw new Error(`a get of ${idOf(name)} has ${got.content}, but ${stands} stands`)
      }
    }
  }

  #get (name: ValueName, noCache: boolean): { content?: Content, ended: boolean } {
    const got: { content?: Content, ended: boolean } = { ended: false }
    void (this.clients[0] as Client).get(name, noCache).then((content) => Object.assign(got, { content, ended: true }))
    return got
  }

  #client (): Client { return new Client(this.view, this.ledger) }

  #do (step: Step): void {
    const { bus, mesh, view } = this
    switch (step.do) {
      case 'write': return mesh.write(step.module, Object.fromEntries(step.values.map(([at, content]) => [idOf({ ...this.name(at), module: step.module }), content])))
      case 'remove': return mesh.write(step.module, undefined)
      case 'restore': return mesh.restore(step.back)
      case 'recreate': return mesh.recreate(step.epochs)
      case 'apply': {
        if (mesh.followers[step.by]?.life === 'up') bus.say(step.by, mesh.apply(step.by, step.most, step.wide))
        return
      }
      case 'die': {
        const follower = mesh.followers[step.by]
        if (follower && follower.life !== 'gone') follower.life = step.how
        return
      }
      case 'rise': {
        const follower = mesh.followers[step.by]
        if (follower?.life === 'gone') bus.say(step.by, mesh.rise(step.by, step.behind))
        else if (follower) follower.life = 'up'
        return
      }
      case 'see': return bus.see(step.which, step.by)
      case 'serve': return bus.serve(step.which)
      case 'fail': return bus.fail(step.which, step.how)
      case 'fault': {
        if (step.fault) bus.faults.set(idOf(this.name(step.value)), step.fault)
        else bus.faults.delete(idOf(this.name(step.value)))
        return
      }
      case 'hear': return bus.hear(view, step.by, step.most)
      case 'repeat': return bus.repeat(view)
      case 'half-open': {
        if (bus.link === 'up') bus.link = 'mute'
        return
      }
      case 'mend': {
        if (bus.link === 'mute') bus.link = 'up'
        return
      }
      case 'lose': return bus.lose(view, step.failFirst)
      case 'deafen': return bus.deafen(view)
      case 'reconnect': {
        if (bus.link !== 'mute') bus.reconnect()
        return
      }
      case 'confirm': return bus.confirm(view)
      case 'turn': return this.#turn()
      case 'watch': {
        void this.clients[step.client]?.watch(this.name(step.value), step.keep)
        return
      }
      case 'unwatch': return this.clients[step.client]?.unwatch(this.name(step.value))
      case 'get': {
        void this.clients[step.client]?.get(this.name(step.value), step.noCache)
        return
      }
      case 'end': {
        this.clients[step.client]?.end()
        this.clients[step.client] = this.#client()
        return
      }
      case 'slow': {
        const client = this.clients[step.client] as Client
        if (step.slow) client.slow = true
        else client.readAgain()
        return
      }
      case 'crowd': {
        if (this.#crowd.length > 2 * limits.fanoutSlice) return
        // More than are told in one turn.
        const come = Array.from({ length: limits.fanoutSlice + 6 }, () => this.#client())
        this.#crowd.push(...come)
        for (const client of come) void client.watch(this.name(step.value), true)
        return
      }
      case 'crowd-leaves': {
        for (const client of this.#crowd.splice(0, 50)) client.end()
      }
    }
  }

  #turn (): void { for (const work of this.#deferred.splice(0)) work() }

  /** Lets everything run that waits for nothing but its turn. */
  async #settle (): Promise<void> { await turn() }

  #check (): void {
    for (const client of this.readers) {
      for (const { name, at } of client.gets) {
        if (this.#now - at > askTimeoutMs + limits.viewTickMs) this.ledger.wrong(`a get of ${idOf(name)} hangs`)
      }
      if (client.slow || this.#deferred.length > 0) continue
      for (const watched of client.watches.values()) if (watched.begun) this.#checkWatch(watched)
    }
    for (const name of this.names) {
      const id = idOf(name)
      if (this.view.lastKnown(name)) this.#known.add(id)
      else if (this.#known.delete(id)) this.ledger.forgot(name)
    }
    if (this.ledger.wrongs.length > 0) throw new Error(this.ledger.wrongs.join('\n'))
  }

  #checkWatch (watched: Watched): void {
    const { name, live, handed, entry } = watched
    const wrong = (what: string): void => this.ledger.wrong(`a watch of ${idOf(name)} ${what}`)
    if (this.view.lastKnown(name) !== entry) wrong('is forgotten')
    if (live && this.ledger.hearing === undefined) wrong('believes to be live while no change is heard')
    if (live && this.ledger.silent) wrong('believes to be live while nobody answers')
    if (live && this.ledger.tooOld(name)) wrong('believes to be live while all answers are too old')
    if (!live && entry.current) wrong('is stale, but gets are answered from memory')
    const out = handed !== undefined && !this.mesh.contents(name).includes(handed) && !this.bus.wordUnderWay(name)
    watched.outSince = out ? watched.outSince ?? this.#now : undefined
    if (live && out && this.#now - (watched.outSince as number) > untoldMs) wrong(`has ${handed}, which nobody answers, and was not told`)
    if (this.#wellSince === undefined || this.#now - this.#wellSince <= this.convergesMs) return
    if (!live) wrong('stays stale though all is well')
    else if (handed !== this.mesh.content(name)) wrong(`has ${handed} for good, but ${this.mesh.content(name)} stands`)
  }
}
