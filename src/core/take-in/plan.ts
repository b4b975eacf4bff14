/** What a take-in would do now: its own steps, run over a store that writes nothing (DESIGN section 6). */
import { createHash } from 'node:crypto'
import { diffComposition } from '../compose/diff.js'
import { canonical } from '../documents.js'
import { BadDocument } from '../errors.js'
import type { Credential } from '../../schemas/composition.js'
import { CompositionSchema } from '../../schemas/composition.js'
import type { Plan } from '../../schemas/plan.js'
import type { Store } from '../ports.js'
import type { Patience } from './again.js'
import { Applied } from './applied.js'
import { HolderRuns } from './holder-runs.js'
import { standing } from './inventory.js'
import { liveSteps } from './live-steps.js'
import { PlanStore, type Planned } from './plan-store.js'
import { StepFailed, take, type TakeInResult } from './take.js'

export interface PlannedTakeIn {
  plan: Plan
  /** Strong, of what would be done: it is the same as long as a run would do the same. */
  etag: string
  /** What would be written, key by key. */
  writes: Planned[]
}

/** Stands for the user that a run would make: one and the same each time, so that the same plan reads the same. */
const newCredential = (to: string): Credential => ({ user: `U${'A'.repeat(55)}`, sealed: '', by: `X${'A'.repeat(55)}`, to })

/** Plans a module's take-in; undefined where the catalogue does not hold the module. Rejects where the buckets cannot be read. */
export async function planTakeIn (store: Store, module: string, patience: Patience): Promise<PlannedTakeIn | undefined> {
  const over = new PlanStore(store)
  // Nothing is written, so no server has anything to apply.
  const applied = new Applied({ applied: async () => undefined })
  const steps = liveSteps({ store: over, makeCredential: newCredential, patience, holder: new HolderRuns(newCredential), applied })
  let result: TakeInResult
  let failed = false
  try {
    result = await take(module, steps, { now: patience.now })
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error
    failed = true
    result = Object.assign(error.result, { said: error.message })
  }
  const { outcome } = result
  if (outcome === 'not-held' || outcome === 'removed') return undefined
  const { fp, commit, registered, composed, grant, said } = result
  const plan: Plan = {
    module,
    outcome: failed ? 'step-failed' : outcome,
    fp,
    commit,
    registered,
    composed: [...composed].sort(),
    grant,
    said: failed || outcome === 'current' ? said : `would be ${outcome}: ${said}`,
    steps: result.steps.map(({ step, error }) => ({ step, ...(error === undefined ? {} : { error }) })),
    compositions: over.planned.filter(({ bucket }) => bucket === 'compositions').map(compositionOf),
    grants: grantsOf(over.planned, module)
  }
  return { plan, writes: over.planned, etag: `"${createHash('sha256').update(canonical(plan)).digest('base64url').slice(0, 22)}"` }
}

function compositionOf ({ key, before, text }: Planned): Plan['compositions'][number] {
  const [node = '', module = ''] = key.split('.')
  return { node, module, ...diffComposition(documentOf(key, before?.text), documentOf(key, text)) }
}

function documentOf (key: string, text: string | undefined): ReturnType<typeof readComposition> {
  try {
    return text === undefined ? undefined : readComposition(key, text)
  } catch (error) {
    if (error instanceof BadDocument) return undefined // what stands does not fit, so all of it is new
    throw error
  }
}

const readComposition = (key: string, text: string) =>
  standing('compositions', key, { key, revision: 1, deleted: false, text }, CompositionSchema).document

function grantsOf (planned: Planned[], module: string): Plan['grants'] {
  const grants = planned.filter(({ bucket }) => bucket === 'grants')
  const fingerprints = (of: Planned[]): string[] => of.map(({ key }) => key.slice(module.length + 1))
  return {
    written: fingerprints(grants.filter(({ text }) => text !== undefined)),
    deleted: fingerprints(grants.filter(({ text, before }) => text === undefined && before !== undefined))
  }
}
