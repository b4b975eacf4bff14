/** Core's Brokers port: asks the agent beside a server of the seat (DESIGN section 4). */
import { MeshError, messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { Brokers } from '../core/ports.js'
import { formatRevision, type Revision } from '../core/revision.js'
import { serviceError, type Asker } from './asker.js'
import { subjects } from './subjects.js'

const encoder = new TextEncoder()

export class NatsBrokers implements Brokers {
  constructor (private readonly asker: () => Asker | undefined, private readonly pause: (ms: number) => Promise<void>) {}

  async applied (server: string, revision: Revision): Promise<void> {
    const deadline = Date.now() + limits.appliedMs
    const payload = encoder.encode(JSON.stringify({ revision: formatRevision(revision) }))
    for (;;) {
      const asker = this.asker()
      if (!asker) throw new MeshError('unavailable', 'the gateway is not connected to the bus')
      try {
        const reply = await asker.ask(subjects.applied(server), payload, deadline - Date.now())
        const error = serviceError(reply)
        if (error) throw new Error(error.reason || `its broker agent answered with error ${error.code}`)
        return
      } catch (error) {
        // An agent that is being restarted is not there for a moment: silence is counted, not its first sign.
        if (!(error instanceof MeshError)) throw error
        if (error.problem !== 'unavailable' || Date.now() + limits.reconnectMs >= deadline) {
          throw new Error(`its broker agent did not answer within ${limits.appliedMs / 1000} s`, { cause: messageOf(error) })
        }
        await this.pause(limits.reconnectMs)
      }
    }
  }
}
