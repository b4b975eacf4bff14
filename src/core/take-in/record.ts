/** The record of the last run worth one (DESIGN section 5, bucket `takeins`). */
import type { TakeInRecord } from '../../schemas/take-in.js'
import { canonical } from '../documents.js'
import { limits } from '../limits.js'
import { printable } from '../names.js'
import type { Entry, Store } from '../ports.js'
import type { TakeInResult } from './take.js'

export interface Ended {
  result: TakeInResult
  failed: boolean
  /** Something was written or purged, by whatever step. */
  wrote: boolean
  /** The fingerprint registered before, if any. */
  from: string | undefined
  by: string[]
  at: number
}

/**
 * Writes the record where something was written, something failed, or the outcome differs from the record before; `known` is that
 * one where it was read already.
 */
export async function keepRecord (store: Store, { result, failed, wrote, from, by, at }: Ended, known?: { entry: Entry | undefined }): Promise<void> {
  const { module, fp, steps } = result
  const outcome = failed ? 'step-failed' : result.outcome
  if (outcome === 'not-held') return
  const before = known ? known.entry : await store.read('takeins', module)
  if (!failed && !wrote && outcomeOf(before?.text) === outcome) return
  const record: TakeInRecord = {
    outcome,
    at: new Date(at).toISOString(),
    by: by.slice(-limits.wakesInRecord),
    ...(from === undefined ? {} : { from }),
    ...(fp === null ? {} : { to: fp }),
    steps: steps.map((step) => step.error === undefined ? step : { ...step, error: printable(step.error, limits.recordErrorCharacters) })
  }
  await store.write('takeins', module, canonical(record), before?.revision ?? 0)
}

function outcomeOf (text: string | undefined): unknown {
  try { return (JSON.parse(text ?? '{}') as { outcome?: unknown }).outcome } catch { return undefined }
}
