import { median } from '../statistics.js'

/** Runs contestants in turn, some rounds over: what the machine does besides then befalls all of them alike. */
export async function alternate<N extends string, T> (
  rounds: number, contestants: Record<N, () => Promise<T>>
): Promise<Record<N, T[]>> {
  const results = Object.fromEntries(Object.keys(contestants).map((name) => [name, []])) as unknown as Record<N, T[]>
  for (let round = 0; round < rounds; round++) {
    for (const name of Object.keys(contestants) as N[]) results[name].push(await contestants[name]())
  }
  return results
}

/** The ratio of medians, and the lowest and highest ratio of a round. */
export function ratio (ours: readonly number[], yardstick: readonly number[]): { value: number, range: [number, number] } {
  const each = ours.map((value, round) => value / yardstick[round]!)
  return { value: median(ours) / median(yardstick), range: [Math.min(...each), Math.max(...each)] }
}

export const number = (value: number, digits = 0): string => value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits })
export const milliseconds = (us: number): string => `${number(us / 1000, us < 10_000 ? 2 : 1)} ms`
