/** Runs an agent of the node's side as a process: its connection, its log, its end. */
import type { NatsConnection } from 'nats'
import { setTimeout as pause } from 'node:timers/promises'
import type { Agent } from '../agents/service.js'
import type { Environment } from '../config.js'
import { limits } from '../core/limits.js'
import { createLog } from '../log.js'
import { connectBus, type Log } from '../nats/connection.js'
import { busUser } from '../nats/user.js'
import { withBus } from './bus.js'
import { onSignal, tellReady } from './life.js'

type About = { part: string } & Record<string, string>

/**
 * Starts the agent once the bus is there, however long that takes, and ends it on a signal: no more asks, then drained. A
 * connection that closed for good, as where the credentials became another user's, is followed by a new one.
 */
export async function runAgent (config: Environment, about: About, start: (nc: NatsConnection, log: Log) => Agent): Promise<void> {
  const reached = withBus(config)
  // A file that holds no credentials is a mistake now, and may be mended later.
  busUser(reached)
  const log = createLog({ level: config.LOG_LEVEL, base: about })
  const running: { nc?: NatsConnection, agent?: Agent } = {}
  let stopping = false
  const drain = async (): Promise<void> => {
    await running.agent?.stop()
    await running.nc?.drain()
  }
  onSignal(async () => {
    stopping = true
    // A bus that is away answers nothing, and nobody waits for an answer then.
    await Promise.race([drain(), pause(limits.agentDrainMs)])
    log.info({}, 'stopped')
  })
  for (;;) {
    const nc = running.nc = await connectBus(reached, Object.values(about).join(' '), { log })
    const agent = running.agent = start(nc, log)
    void agent.ready.then(tellReady)
    const error = await nc.closed()
    if (stopping) return
    log.warn({ why: error ? error.message : 'it was closed' }, 'the connection to the bus ended; connecting anew')
    // Its calls on a connection that is closed may fail; what it holds in memory is let go all the same.
    await agent.stop().catch(() => {})
  }
}
