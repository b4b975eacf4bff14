/** A service of the bus that keeps standing: `nats micro ls` sees it, and one that ends though nobody stopped it is started again. */
import type { NatsConnection, Service, ServiceMsg } from 'nats'
import { setTimeout as pause } from 'node:timers/promises'
import { messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { Log } from '../nats/connection.js'
import { version } from '../package-info.js'

export interface Agent {
  /** Resolves once it answers for the first time. */
  ready: Promise<void>
  /** Takes no more asks and lets go of all it follows; the connection stays open, for whoever opened it to drain. */
  stop (): Promise<void>
}

export interface StandingService {
  name: string
  description: string
  metadata: Record<string, string>
  /** Several of one group share the asks. */
  queue: string
  endpoints: Record<string, { subject: string, answer (message: ServiceMsg): void }>
  /** The service stands (again), and the bus has confirmed it. */
  up? (): void
}

/**
 * Whoever asks names the subject that is answered to, and NATS does not check whether they may publish there: an answer to `$KV.…` would
 * write in the asker's stead. So only inboxes are answered, and the prefix of replies between accounts.
 */
const isInbox = (reply: string | undefined): boolean => reply !== undefined && /^_(INBOX|R_)/.test(reply)

/** Starts a service on a connection. */
export function standingService (nc: NatsConnection, log: Log, { endpoints, up, ...about }: StandingService): Agent {
  const stopping = new AbortController()
  const { signal } = stopping
  let service: Service | undefined
  let said = ''
  let answers = (): void => {}
  const ready = new Promise<void>((resolve) => { answers = resolve })

  /** Serves until the service ends; answers why it did. */
  const once = async (): Promise<string | undefined> => {
    try {
      service = await nc.services.add({ ...about, version })
      for (const [name, { subject, answer }] of Object.entries(endpoints)) {
        service.addEndpoint(name, { subject, handler: (error, message) => { if (!error && isInbox(message.reply)) answer(message) } })
      }
      await nc.flush()
      // What the bus refused it has said before the flush came back.
      if (!service.isStopped) {
        said = ''
        up?.()
        log.info({}, 'answering')
        answers()
      }
      return (await service.stopped)?.message
    } catch (error) {
      return messageOf(error)
    }
  }

  const serve = async (): Promise<void> => {
    while (!signal.aborted && !nc.isClosed()) {
      const why = await once()
      if (signal.aborted || nc.isClosed()) return
      // The bus's rights may have been narrowed, and be widened again; what stays the same meanwhile is said once.
      if (why !== said) log.error({ why }, 'the service on the bus ended; starting it again')
      said = why ?? ''
      await pause(limits.serviceAgainMs, undefined, { signal }).catch(() => {})
    }
  }
  const serving = serve()

  return {
    ready,
    async stop () {
      stopping.abort()
      await service?.stop()
      await serving
    }
  }
}
