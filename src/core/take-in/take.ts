/**
 * The order of a take-in and the name of each way to end (DESIGN section 3). What a step does is behind `Steps`; here is
 * only what follows what, what is said, and what was done when a step fails.
 */
import { MeshError, messageOf } from '../errors.js'
import { sameCommit, short } from '../names.js'

export const stepNames = ['held', 'trunk', 'registeredAt', 'takeIn', 'nodesOf', 'compose', 'busHolder', 'grants'] as const
export type StepName = typeof stepNames[number]

/** What an HTTP caller is told; `removed` is known to the record alone (an operator deleted the module, what was left of it went). */
export const outcomes = ['taken-in', 'composed', 'current', 'unassigned', 'no-trunk', 'old-fingerprint', 'superseded', 'waiting'] as const
export type Outcome = typeof outcomes[number] | 'removed' | 'not-held'

/** The trunk value as it was read: what a module should be at. */
export interface TrunkAt { fp: string, commit: string }

/** Where a module runs and where it still stands. */
export interface NodesOf {
  /** `absent` is not `deleted`: a bucket that lost data removes nothing (DESIGN section 5). */
  assignment: 'stands' | 'deleted' | 'absent'
  assigned: string[]
  /** Nodes that hold a composition of it though it is no longer theirs. */
  left: string[]
}

export interface Registration { fp: string, commit: string }

export interface Composed {
  /** The registration that the compositions carry. */
  at: Registration | undefined
  /** Nodes whose compositions were written or removed now. */
  written: string[]
  /** A module that is bound to this one's offers has another user on the bus since. */
  otherUsers?: boolean
}

/** A compose that failed on a node, after it wrote others: what is done is said all the same. */
export class PartlyComposed extends Error {
  override readonly name = 'PartlyComposed'

  constructor (message: string, readonly written: readonly string[]) { super(message) }
}

export interface Steps {
  /** Whether the catalogue holds the module, and registered at some build; whether an operator removed it; or it was never there. */
  held (module: string): Promise<'registered' | 'held' | 'removed' | 'absent'>
  trunk (module: string): Promise<TrunkAt | { old: string } | undefined>
  registeredAt (module: string, trunk: TrunkAt): Promise<boolean>
  /** Registers from the done key of the trunk's fingerprint. `moved`: the trunk is another by now, or the module was removed. */
  takeIn (module: string, trunk: TrunkAt): Promise<'registered' | 'already' | 'waiting' | 'moved'>
  nodesOf (module: string): Promise<NodesOf>
  /** Composes the module's nodes, clears those it left, and composes modules bound to what it offers. */
  compose (module: string, nodes: NodesOf): Promise<Composed>
  /**
   * Composes the broker module's node and waits until the bus's servers run with its users, where that is needed. Undefined
   * where the step is left out: no broker has a seat, or nothing of the module concerns the bus. `written`: the node whose
   * composition was written now.
   */
  busHolder (module: string, nodes: NodesOf, composed: Composed): Promise<{ written: string | undefined } | undefined>
  grants (module: string, nodes: NodesOf, at: Registration | undefined): Promise<Granted>
}

export interface Granted {
  /** The grant was behind and was written. */
  granted: boolean
  /** Grants of other fingerprints that were deleted. */
  deleted: number
  /** The registration, the assignment or a composition moved since they were composed: no grant stands, and it has to be looked at again. */
  moved: boolean
  /** Something that the run saw is another by now: it is looked at again, and what was granted stands. */
  stale?: boolean
}

export interface StepDone { step: StepName, ms: number, error?: string }

export interface TakeInResult {
  outcome: Outcome
  module: string
  /** What is registered when the run ended; null where nothing is. */
  fp: string | null
  commit: string | null
  /** Registered by this run. */
  registered: boolean
  /** Nodes whose compositions were written now, the holder's included. */
  composed: string[]
  /** The grant was written now. */
  grant: boolean
  /** What was done, in a line. */
  said: string
  steps: StepDone[]
}

/** A step that failed: which, why, and what was done before it. */
export class StepFailed extends MeshError {
  constructor (readonly step: StepName, readonly result: TakeInResult, cause: unknown) {
    const done = result.steps.filter(({ error }) => error === undefined).map(({ step }) => step)
    const { registered, composed } = result
    super('step-failed', `the step ${step} failed: ${messageOf(cause)}`, { cause, members: { step, done, registered, composed } })
  }
}

export interface TakeOptions {
  now: () => number
  /** Told as each step ends. */
  progress?: (step: StepDone) => void
}

/** How often a run looks again because what it read moved under it. */
const mostRounds = 5

const isSame = (a: Registration | undefined, b: Registration): boolean => a !== undefined && a.fp === b.fp && sameCommit(a.commit, b.commit)

const list = (names: string[]): string => names.join(', ')

const noTrunk = (module: string) => ({ outcome: 'no-trunk' as const, said: `${module} has no trunk value: the indexer has not said what it should be at` })
const oldFingerprint = (module: string, old: string) =>
  ({ outcome: 'old-fingerprint' as const, said: `the trunk value of ${module} has a fingerprint of an older form, ${short(old)}` })
const waiting = (module: string, { fp, commit }: TrunkAt) => ({ outcome: 'waiting' as const, said: `${module} waits for the build of ${short(fp)} (${short(commit)})` })

/** Runs one take-in. Rejects with StepFailed; every other end is an outcome. */
export async function take (module: string, steps: Steps, { now, progress }: TakeOptions): Promise<TakeInResult> {
  const result: TakeInResult = {
    outcome: 'current', module, fp: null, commit: null, registered: false, composed: [], grant: false, said: '', steps: []
  }

  async function run<T> (step: StepName, work: () => Promise<T>, isLeftOut: (got: T) => boolean = () => false): Promise<T> {
    const began = now()
    const ended = (error?: string): void => {
      const done = { step, ms: Math.round(10 * (now() - began)) / 10, ...(error === undefined ? {} : { error }) }
      result.steps.push(done)
      progress?.(done)
    }
    try {
      const got = await work()
      if (!isLeftOut(got)) ended()
      return got
    } catch (error) {
      ended(messageOf(error))
      if (error instanceof PartlyComposed) result.composed.push(...error.written.filter((node) => !result.composed.includes(node)))
      throw new StepFailed(step, result, error)
    }
  }

  const end = (outcome: Outcome, said: string): TakeInResult => Object.assign(result, { outcome, said })
  const at = (registration: Registration | undefined): void => {
    result.fp = registration?.fp ?? null
    result.commit = registration?.commit ?? null
  }
  const name = (): string => result.fp === null ? module : `${module} at ${short(result.fp)}`

  const composedNow = (node: string): void => { if (!result.composed.includes(node)) result.composed.push(node) }

  /** What this run set out for: where the trunk is another at the end and registered, another's registration came first. */
  let aim: TrunkAt | undefined
  let superseded = false
  let removed: boolean
  let nodes: NodesOf
  let deleted = 0
  /** The end of a run that cannot register: what is registered is composed all the same, since operators' writes count. */
  let unmoved: { outcome: Outcome, said: string } | undefined
  for (let round = 1; ; round++) {
    const stillMoves = (): void => {
      if (round === mostRounds) throw new Error(`what ${module} is taken in from moved ${round} times meanwhile: try again`)
    }
    const held = await run('held', () => steps.held(module))
    if (held === 'absent') return end('not-held', `${module} is not in the catalogue`)
    removed = held === 'removed'
    unmoved = undefined
    let trunk: TrunkAt | undefined
    if (!removed) {
      const found = await run('trunk', () => steps.trunk(module))
      if (!found || 'old' in found) unmoved = found ? oldFingerprint(module, found.old) : noTrunk(module)
      else {
        const now = trunk = found
        at(now)
        superseded = !isSame(aim ??= now, now)
        if (!await run('registeredAt', () => steps.registeredAt(module, now))) {
          const taken = await run('takeIn', async () => {
            const taken = await steps.takeIn(module, now)
            if (taken === 'moved') stillMoves()
            return taken
          })
          if (taken === 'moved') continue
          if (taken === 'waiting') unmoved = waiting(module, now)
          if (taken === 'registered') {
            result.registered = true
            superseded = false
          }
        }
      }
      if (unmoved && held !== 'registered') return end(unmoved.outcome, unmoved.said)
    }
    /** What has to be composed; without it, whatever is registered. */
    const due = unmoved ? undefined : trunk
    const of = nodes = await run('nodesOf', () => steps.nodesOf(module))
    const composed = await run('compose', async () => {
      const composed = await steps.compose(module, of)
      composed.written.forEach(composedNow)
      if (due && !isSame(composed.at, due)) stillMoves()
      return composed
    })
    // Another registration was composed: whether it is right, the trunk says, read again.
    if (due && !isSame(composed.at, due)) continue
    if (unmoved && unmoved.outcome !== 'waiting') at(composed.at)
    const holder = await run('busHolder', () => steps.busHolder(module, of, composed), (got) => got === undefined)
    if (holder?.written !== undefined) composedNow(holder.written)
    const done = await run('grants', async () => {
      const done = await steps.grants(module, of, composed.at)
      if (done.moved) stillMoves()
      return done
    })
    deleted += done.deleted
    result.grant = !done.moved && (result.grant || done.granted)
    // Where it moves without end, whoever moves it wakes a run of its own.
    if (!done.moved && (!done.stale || round === mostRounds)) break
  }
  if (superseded) result.registered = false

  const did = [
    ...(result.registered ? [`registered from the build of ${short(result.fp ?? '')} (${short(result.commit ?? '')})`] : []),
    ...(result.composed.length > 0 ? [`composed ${list(result.composed)}`] : []),
    ...(result.grant ? ['granted'] : []),
    ...(deleted > 0 ? [`deleted ${deleted} grant${deleted === 1 ? '' : 's'}`] : [])
  ]
  const saying = (what: string): string => did.length > 0 ? `${what}: ${did.join('; ')}` : what
  if (removed) return end('removed', saying(`${module} was removed from the catalogue`))
  if (unmoved) return end(unmoved.outcome, saying(unmoved.said))
  if (superseded) return end('superseded', saying(`another registration of ${module} came first and was gone on with, ${name()}`))
  if (nodes.assigned.length === 0) {
    const why = nodes.assignment === 'absent'
      ? nodes.left.length > 0 ? `has no assignment, and still stands on ${list(nodes.left)}` : 'has no assignment'
      : 'is assigned to no node'
    return end('unassigned', saying(`${name()} ${why}`))
  }
  if (result.registered) return end('taken-in', saying(name()))
  return did.length > 0 ? end('composed', saying(name())) : end('current', `${name()} is current on ${list(nodes.assigned)}`)
}
