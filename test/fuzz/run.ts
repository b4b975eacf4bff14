/** Runs one kind from a seed: the same seed gives the same inputs, and a finding is told by the smallest input that shows it. */
import fc from 'fast-check'
import type { Kind } from './kind.js'
import type { Stage } from './stage.js'

export interface Report { runs: number, counts: Map<string, number>, ms: number, finding?: string }

interface Options { seed: number, runs: number, path?: string }

/** The longest that one call takes, in ms: a finding that is a wait is made smaller only as far as there is time. */
const longestMs = 120_000

/** Inputs between two looks at the gateway. */
const batch = 100

const cut = (text: string, most: number): string => text.length > most ? `${text.slice(0, most)}…` : text

/** How a finding's input is said: JSON, bytes as Latin-1. */
const said = (input: unknown): string => cut(JSON.stringify(input, (_, value: { type?: unknown, data?: unknown } | null) =>
  value?.type === 'Buffer' && Array.isArray(value.data) ? Buffer.from(value.data as number[]).toString('latin1') : value), 4000)

/** Resolves with what was done, a finding included; rejects where the gateway cannot be gone on with. */
export async function fuzz (stage: Stage, kind: Kind, { seed, runs, path }: Options): Promise<Report> {
  const began = Date.now()
  const counts = new Map<string, number>()
  let tried = 0
  const details = await fc.check(fc.asyncProperty(kind.input, async (input) => {
    const came = await kind.attempt(stage, input)
    counts.set(came, (counts.get(came) ?? 0) + 1)
    if (stage.gateway.ended || ++tried % batch === 0) await stage.look()
  }), { seed, numRuns: runs, interruptAfterTimeLimit: longestMs, ...(path === undefined ? {} : { path }) })
  const report = { runs: details.numRuns, counts, ms: Date.now() - began }
  if (details.failed) {
    const why = details.errorInstance instanceof Error ? details.errorInstance.message : String(details.errorInstance)
    return { ...report, finding: `${cut(why, 1500)}\n  input: ${said(details.counterexample?.[0])}\n  again: --seed ${details.seed} --path ${details.counterexamplePath}` }
  }
  try {
    await stage.look()
  } catch (error) {
    return { ...report, finding: `after the last inputs: ${(error as Error).message}\n  again: --seed ${seed} (${runs} inputs)` }
  }
  return report
}

/** The counts in a line, the most frequent first. */
export const countsOf = (counts: Report['counts']): string => [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) => `${name} ${count}`).join(', ')
