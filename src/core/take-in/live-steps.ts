/** The steps of a take-in on the buckets and the bus. */
import { messageOf } from '../errors.js'
import { limits } from '../limits.js'
import type { Entry, MakeCredential, Store } from '../ports.js'
import { again, type Patience } from './again.js'
import type { Applied } from './applied.js'
import { composeNodes, readNodes } from './compose-nodes.js'
import { each } from './each.js'
import { grant, grantBehind } from './grants.js'
import type { HolderRuns } from './holder-runs.js'
import { isListedRight, isListedStill, standingHolder } from './holder.js'
import { heldIn, isAt, readTrunk, register } from './register.js'
import { Sight } from './sight.js'
import type { Steps } from './take.js'

export interface LiveStepsOptions {
  store: Store
  makeCredential: MakeCredential
  patience: Patience
  /** Which servers of the bus run with which users, as this process knows. */
  applied: Applied
  /** The holder's compose of this process, which all runs that wait share (DESIGN section 3.7). */
  holder: HolderRuns
}

export interface LiveSteps extends Steps {
  /** The fingerprint that was registered when the run began; undefined where none was, or nothing could be read. */
  from (): string | undefined
  /** The record before this run's, as it was read; undefined where nothing could be read. */
  recordBefore (): { entry: Entry | undefined } | undefined
}

/** Steps of one run of a module; it has `limits.takeInMs` from now. */
export function liveSteps ({ store, makeCredential, patience, holder, applied }: LiveStepsOptions): LiveSteps {
  const deadline = patience.now() + limits.takeInMs
  const retried = <T>(work: () => Promise<T>): Promise<T> => again(work, deadline, patience)
  let first: { from: string | undefined, record: Entry | undefined } | undefined
  let sight: Sight | undefined
  const remade = new Map<string, number>()

  /** Works on what is seen of the module. What failed may have failed because that is old: the next try sees anew. */
  const seeing = <T>(module: string, work: (sight: Sight) => Promise<T>): Promise<T> => retried(async () => {
    const seen = sight ??= await Sight.of(store, module, { holder: holder.key, remade })
    first ??= { from: registeredIn(seen), record: seen.target('takeins', module) }
    try {
      return await work(seen)
    } catch (error) {
      sight = undefined
      throw error
    }
  })

  return {
    from: () => first?.from,
    recordBefore: () => first && { entry: first.record },

    held: (module) => {
      sight = undefined
      return seeing(module, async (sight) => {
        const { document, deleted } = heldIn(sight)
        return document ? document.registered ? 'registered' : 'held' : deleted ? 'removed' : 'absent'
      })
    },
    trunk: (module) => seeing(module, readTrunk),
    registeredAt: (module, trunk) => seeing(module, async (sight) => isAt((await (await sight.inputs()).module(module)).document?.registered, trunk)),
    takeIn: (module, trunk) => seeing(module, (sight) => register(sight, trunk)),
    nodesOf: (module) => seeing(module, readNodes),
    compose: async (module, nodes) => {
      const { document: seat } = await seeing(module, async (sight) => (await sight.inputs()).seat())
      return composeNodes({ store, makeCredential, again: retried, seeing: (work) => seeing(module, work) }, module, nodes, seat)
    },
    busHolder: async (module, nodes, { at, written: composedNow, otherUsers = false }) => {
      const { behind, standing, isRight, isConcerned } = await seeing(module, async (sight) => {
        const behind = grantBehind(sight, nodes, at)
        const standing = await standingHolder(sight)
        const stands = nodes.assigned.length > 0 || nodes.left.length > 0 || behind || composedNow.length > 0
        return {
          behind,
          standing,
          isRight: !otherUsers && await isListedRight(standing?.composition, sight),
          isConcerned: stands || isListedStill(standing?.composition, module, nodes)
        }
      })
      if (!standing || !isConcerned) return undefined
      const composed = isRight ? { ...standing, written: false, sameUsersAs: undefined } : await holder.run(store, retried)
      if (!composed) return undefined
      const { seat, revision, written, sameUsersAs } = composed
      if (sameUsersAs !== undefined) applied.same({ ...revision, revision: sameUsersAs }, revision)
      await each(seat.servers ?? [seat.node], async (server) => {
        if (!behind && applied.has(server, revision)) return
        try {
          await applied.ask(server, revision)
        } catch (error) {
          throw new Error(`the bus's server ${server} did not take the users of ${seat.node}.${seat.module}: ${messageOf(error)}`, { cause: error })
        }
      })
      return { written: written ? seat.node : undefined }
    },
    grants: (module, nodes, at) => seeing(module, (sight) => grant(sight, nodes, at))
  }
}

function registeredIn (sight: Sight): string | undefined {
  try { return heldIn(sight).document?.registered?.fp } catch { return undefined } // a document that does not fit is the step's to tell
}
