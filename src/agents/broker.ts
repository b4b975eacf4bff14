/**
 * The agent beside a nats-server of the seat: keeps the server's users as the broker module's composition and the file of
 * fixed users have them, and tells the take-in when the server runs with them (DESIGN sections 4 and 5). A service of the bus.
 */
import { Events, type NatsConnection } from 'nats'
import { messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { formatRevision, isOlder, type Revision } from '../core/revision.js'
import type { Log } from '../nats/connection.js'
import type { Following } from '../nats/follow.js'
import { subjects } from '../nats/subjects.js'
import { AppliedAsks, type Applying } from './applied-asks.js'
import type { BrokerEnvironment } from './broker-config.js'
import { standingService, type Agent } from './service.js'
import { renderUserList } from './user-list.js'
import { UsersFile } from './users-file.js'
import { followWantedUsers, type WantedUsers } from './wanted-users.js'

export interface BrokerOptions { prefix: string, config: BrokerEnvironment, log: Log }

class Broker implements Agent {
  readonly #log: Log
  readonly #file: UsersFile
  readonly #state: Applying = { attempt: 0 }
  readonly #asks = new AppliedAsks(this.#state, (asked) => this.#whyLate(asked))
  readonly #service: Agent
  readonly #following: Following
  readonly #look: NodeJS.Timeout
  #wanted: WantedUsers | undefined
  #dirty = false
  #work: Promise<void> | undefined
  #again: NodeJS.Timeout | undefined
  #stopped = false
  #saidRows = ''
  /** What was in the way of the last attempt. */
  #troubles: string[] = []

  constructor (private readonly nc: NatsConnection, { prefix, config, log }: BrokerOptions) {
    const server = config.BROKER_SERVER
    this.#log = log
    this.#file = new UsersFile(config)
    this.#following = followWantedUsers(nc, { prefix, server, log, wanted: (users) => this.#want(users) })
    this.#service = standingService(nc, log, {
      name: 'mesh-broker',
      description: `applies the users of the bus to ${server}`,
      metadata: { server },
      queue: `broker-${server}`,
      endpoints: { applied: { subject: subjects.applied(server), answer: (message) => this.#asked(this.#asks.take(message)) } }
    })
    this.#look = setInterval(() => { if (this.#file.fixedMoved()) this.#kick() }, limits.fixedUsersLookMs)
    void this.#hearReconnects()
  }

  get ready (): Promise<void> { return this.#service.ready }

  async stop (): Promise<void> {
    this.#stopped = true
    clearInterval(this.#look)
    clearTimeout(this.#again)
    this.#asks.stop()
    await Promise.all([this.#following.stop(), this.#service.stop(), this.#work])
  }

  #want (users: WantedUsers | undefined): void {
    this.#wanted = users
    if (!users) return
    // A bucket that was made anew or rewound: what was applied of it before says nothing about what stands now.
    if (this.#state.applied && isOlder(users.revision, this.#state.applied)) this.#state.applied = undefined
    this.#kick()
  }

  /** Who asks again after a failure wants another attempt. */
  #asked (revision: Revision | undefined): void {
    if (revision && this.#wanted && !isOlder(this.#wanted.revision, revision)) this.#kick()
  }

  /** One attempt at a time; whatever comes during one makes one more after it. */
  #kick (): void {
    this.#dirty = true
    clearTimeout(this.#again)
    this.#work ??= this.#attempts().finally(() => {
      this.#work = undefined
      if (this.#dirty && !this.#stopped) this.#kick()
    })
  }

  async #attempts (): Promise<void> {
    while (this.#dirty && !this.#stopped) {
      this.#dirty = false
      this.#state.attempt++
      await this.#attempt(this.#wanted)
      this.#asks.settle()
    }
  }

  async #attempt (wanted: WantedUsers | undefined): Promise<void> {
    const revision = wanted && formatRevision(wanted.revision)
    const troubles: string[] = []
    // A list that is none is tried when it is written again; a server that does not take one, after a while.
    if (wanted && 'problem' in wanted) troubles.push(this.#failed(wanted, wanted.problem))
    try {
      if (wanted && 'rows' in wanted) await this.#applyRows(wanted)
      else await this.#applyFixed()
    } catch (error) {
      const why = messageOf(error)
      if (wanted && 'rows' in wanted) this.#failed(wanted, why)
      troubles.push(why)
      if (!this.#stopped) this.#again = setTimeout(() => this.#kick(), limits.reloadAgainMs)
    }
    // Said once, and not at each try.
    for (const why of troubles) if (!this.#troubles.includes(why)) this.#log.error({ why, revision }, 'the users could not be applied')
    this.#troubles = troubles
  }

  async #applyFixed (): Promise<void> {
    const changed = await this.#file.applyFixed()
    if (changed) this.#log.info({}, 'the server runs with the fixed users, and with those of modules that it had')
  }

  #failed ({ revision }: WantedUsers, why: string): string {
    this.#state.failed = { revision, why }
    return why
  }

  async #applyRows ({ revision, rows }: WantedUsers & { rows: unknown[] }): Promise<void> {
    const { text, dropped } = renderUserList(await this.#file.fixed(), rows)
    const said = JSON.stringify(dropped)
    if (said !== this.#saidRows) for (const row of dropped) this.#log.error(row, 'a row of the user list is bad and was left out')
    this.#saidRows = said
    await this.#file.apply(text)
    this.#log.info({ revision: formatRevision(revision) }, 'the server runs with the users')
    // The bucket may have been rewound meanwhile; then this is not of the bucket that stands.
    if (this.#wanted && !isOlder(this.#wanted.revision, revision)) this.#state.applied = revision
    this.#state.failed = undefined
  }

  #whyLate (asked: Revision): string {
    if (!this.#wanted) return 'this agent has seen no user list: the broker seat or its composition is missing'
    const seen = formatRevision(this.#wanted.revision)
    if (!isOlder(this.#wanted.revision, asked)) return `the users of revision ${seen} are still being applied`
    return `no revision ${formatRevision(asked)} of the user list came within ${limits.appliedAskMs} ms; the last one seen is ${seen}`
  }

  async #hearReconnects (): Promise<void> {
    for await (const { type } of this.nc.status()) {
      if (this.#stopped) return
      // The server may be another, started from a file that was put back: what stands is rendered again.
      if (type === Events.Reconnect) this.#kick()
    }
  }
}

/** Starts the agent on a connection. Its list is rendered and applied at once, whether or not anybody asks. */
export const startBroker = (nc: NatsConnection, options: BrokerOptions): Agent => new Broker(nc, options)
