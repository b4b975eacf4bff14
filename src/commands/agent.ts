/** Runs an agent of the node's side as a process: its connection, its log, its end. */
import type { NatsConnection } from 'nats'
import { setTimeout as pause } from 'node:timers/promises'
import type { Agent } from '../agents/service.js'
import type { Environment } from '../config.js'
import { limits } from '../core/limits.js'
import { createLog } from '../log.js'
import { connectBus, type Log } from '../nats/connection.js'
import { withBus } from './bus.js'
import { onSignal, tellReady } from './life.js'

type About = { part: string } & Record<string, string>

/** Starts the agent once the bus is there, however long that takes, and ends it on a signal: no more asks, then drained. */
export async function runAgent (config: Environment, about: About, start: (nc: NatsConnection, log: Log) => Agent): Promise<void> {
  const log = createLog({ level: config.LOG_LEVEL, base: about })
  const running: { nc?: NatsConnection, agent?: Agent } = {}
  const drain = async (): Promise<void> => {
    await running.agent?.stop()
    await running.nc?.drain()
  }
  onSignal(async () => {
    // A bus that is away answers nothing, and nobody waits for an answer then.
    await Promise.race([drain(), pause(limits.agentDrainMs)])
    log.info({}, 'stopped')
  })
  const nc = running.nc = await connectBus(withBus(config), Object.values(about).join(' '), { log })
  const agent = running.agent = start(nc, log)
  void nc.closed().then((error) => {
    if (!error) return
    log.fatal({ why: error.message }, 'the connection to the bus is closed for good')
    process.exit(1)
  })
  await agent.ready
  tellReady()
}
