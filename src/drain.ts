/** The order in which a gateway goes down, and which part of DRAIN_MS each step has (DESIGN section 9, docs/watch.md). */
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import { limits } from './core/limits.js'
import type { Mesh } from './nats/mesh.js'

export interface Drained {
  app: FastifyInstance
  /** The port of its own for health, where there is one. */
  operations: FastifyInstance | undefined
  mesh: Pick<Mesh, 'drain' | 'stop'>
}

/** Resolves when everything is closed; what cannot be finished is cut, so that it takes less than `drainMs`. */
export async function drain ({ app, operations, mesh }: Drained, drainMs: number): Promise<void> {
  const part = (share: number, most: number): number => Math.min(share * drainMs, most)
  // At once: not ready, and no work that lasts. Whatever else comes is answered, and its connection ends with the answer.
  const takeInsEnded = mesh.drain()
  app.sessions.takeNoMore()
  app.endConnections(limits.drainAnswersPart * drainMs)
  // Until a balancer has seen that, it sends new connections here: the port stays open, and whoever is told to come back comes back later.
  await pause(part(limits.drainNoticePart, limits.drainNoticeMs))
  const tellMs = Math.min(part(limits.drainTellPart, limits.drainTellMs), app.sessions.size * limits.drainEachMs)
  await app.sessions.drain(part(limits.drainGracePart, limits.drainGraceMs), tellMs)
  // What is being answered needs the bus, and a take-in that somebody waits for is being answered.
  await Promise.all([app.close(), takeInsEnded])
  // Health last: until then a probe hears that the process lives and is not ready.
  await Promise.all([operations?.close(), mesh.stop()])
}
