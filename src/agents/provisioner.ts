/**
 * The provisioner of a node: follows the node's compositions, answers their values from memory, and says which moved
 * (DESIGN sections 2 and 4). A service of the bus; several may serve one node, each speaking for itself.
 */
import { Empty, Events, headers, type MsgHdrs, type NatsConnection, type ServiceMsg } from 'nats'
import { limits } from '../core/limits.js'
import type { Word } from '../core/ports.js'
import { formatRevision, type Revision } from '../core/revision.js'
import type { Log } from '../nats/connection.js'
import { follow } from '../nats/follow.js'
import { revisionHeader, subjects } from '../nats/subjects.js'
import { ProvisionerState, type Reply } from './provisioner-state.js'
import { standingService, type Agent } from './service.js'

export interface ProvisionerOptions { node: string, prefix: string, log: Log }

const withRevision = (revision: Revision): MsgHdrs => {
  const made = headers()
  made.set(revisionHeader, formatRevision(revision))
  return made
}

/** Starts a provisioner on a connection; it does not answer before it has read all compositions of its node. */
export function startProvisioner (nc: NatsConnection, { node, prefix, log }: ProvisionerOptions): Agent {
  const state = new ProvisionerState(node)
  let service: Agent | undefined
  let stopped = false
  let answers = (): void => {}
  const ready = new Promise<void>((resolve) => { answers = resolve })

  const say = (words: Word[]): void => {
    // What is said while the bus is away is lost; everything is said again when it is back.
    if (stopped || nc.isClosed()) return
    for (const { module, kind, key, revision } of words) {
      nc.publish(subjects.changed(node, module), JSON.stringify({ kind, key }), { headers: withRevision(revision) })
    }
  }

  const answer = (message: ServiceMsg, ask: (module: string) => Reply): void => {
    const module = message.subject.split('.')[3] ?? ''
    let reply = ask(module)
    const largest = (nc.info?.max_payload ?? limits.documentBytes) - limits.replyHeaderBytes
    if ('text' in reply && Buffer.byteLength(reply.text) > largest) {
      reply = { code: 500, reason: `the answer is larger than the bus takes in one message (${largest} bytes)` }
    }
    const options = { headers: withRevision(state.revisionOf(module)) }
    if ('text' in reply) message.respond(reply.text, options)
    else message.respondError(reply.code, reply.reason, Empty, options)
  }

  const serve = (): Agent => standingService(nc, log, {
    name: 'mesh-provisioner',
    description: `answers the values of the modules on ${node}`,
    metadata: { node },
    queue: `provisioner-${node}`,
    endpoints: {
      get: { subject: subjects.getOfAll(node), answer: (message) => answer(message, (module) => state.get(module, message.string())) },
      list: { subject: subjects.listOfAll(node), answer: (message) => answer(message, (module) => state.list(module)) }
    },
    // Only now does an ask that a word causes find an answer.
    up () {
      say(state.all())
      answers()
    }
  })

  const hearReconnects = async (): Promise<void> => {
    for await (const { type } of nc.status()) if (type === Events.Reconnect) say(state.all())
  }

  const following = follow(nc, { prefix, bucket: 'compositions', filter: `${node}.*` }, {
    anew: (epoch) => { state.anew(epoch) },
    entry: (entry) => { say(state.entry(entry)) },
    ready: () => {
      const words = state.ready()
      if (service) say(words)
      else if (!stopped) service = serve()
    },
    trouble: (why) => { log.warn({ why }, 'the compositions cannot be followed; trying on') }
  })
  void hearReconnects()

  return {
    ready,
    async stop () {
      stopped = true
      await following.stop()
      await service?.stop()
    }
  }
}
