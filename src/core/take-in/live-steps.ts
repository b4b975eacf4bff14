/** The steps of a take-in on the buckets and the bus. */
import { messageOf } from '../errors.js'
import { limits } from '../limits.js'
import type { Brokers, MakeCredential, Store } from '../ports.js'
import { again, type Patience } from './again.js'
import { composeNodes, readNodes } from './compose-nodes.js'
import { each } from './each.js'
import { grant, grantBehind } from './grants.js'
import { composeHolder, isListedStill, type HolderComposed } from './holder.js'
import { Inventory } from './inventory.js'
import { isAt, readHeld, readTrunk, register } from './register.js'
import { Shared } from './shared.js'
import type { Steps } from './take.js'

export interface LiveStepsOptions {
  store: Store
  brokers: Brokers
  makeCredential: MakeCredential
  patience: Patience
  /** Servers that were not heard to run with the users that this process wrote: asked again by the next run, whatever it changed. */
  unapplied: Set<string>
  /** The holder's compose of this process, which all runs that wait share (DESIGN section 3.7). */
  holder: Shared<HolderComposed | undefined>
}

/** Steps of one run; it has `limits.takeInMs` from now. */
export function liveSteps ({ store, brokers, makeCredential, patience, holder, unapplied }: LiveStepsOptions): Steps {
  const inventory = new Inventory(store)
  const deadline = patience.now() + limits.takeInMs
  const retried = <T>(work: () => Promise<T>): Promise<T> => again(work, deadline, patience)
  const composing = { inventory, makeCredential, again: retried }

  return {
    held: (module) => retried(() => readHeld(inventory, module)),
    trunk: (module) => retried(() => readTrunk(inventory, module)),
    registeredAt: (module, trunk) => retried(async () => isAt((await inventory.module(module)).document?.registered, trunk)),
    takeIn: (module, trunk) => retried(() => register(inventory, module, trunk)),
    nodesOf: (module) => retried(() => readNodes(inventory, module)),
    compose: async (module, nodes) => {
      const { document: seat } = await retried(() => inventory.seat())
      return composeNodes(composing, module, nodes, seat)
    },
    busHolder: async (module, nodes, { at, written: composedNow }) => {
      const behindNow = retried(() => grantBehind(inventory, module, nodes, at))
      behindNow.catch(() => undefined) // thrown where it is awaited
      const stands = nodes.assigned.length > 0 || nodes.left.length > 0
      if (!stands && !await behindNow && composedNow.length === 0 && !await retried(() => isListedStill(inventory, module, nodes))) return undefined
      const composed = await holder.run(() => retried(() => composeHolder(inventory, makeCredential)))
      const behind = await behindNow
      if (!composed) return undefined
      const { seat, revision, written, usersChanged } = composed
      const servers = seat.servers ?? [seat.node]
      if (usersChanged) for (const server of servers) unapplied.add(server)
      if (behind || servers.some((server) => unapplied.has(server))) {
        await each(servers, async (server) => {
          try {
            await brokers.applied(server, revision)
            unapplied.delete(server)
          } catch (error) {
            unapplied.add(server)
            throw new Error(`the bus's server ${server} did not take the users of ${seat.node}.${seat.module}: ${messageOf(error)}`, { cause: error })
          }
        })
      }
      return { written: written ? seat.node : undefined }
    },
    grants: (module, nodes, at) => retried(() => grant(inventory, module, nodes, at))
  }
}
