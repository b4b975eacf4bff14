/** Numbers out of samples. All throw for no samples: a figure without one is a fault of the run, not a zero. */

/** The value below which a share of the samples lies (nearest rank). */
export function quantile (samples: readonly number[], share: number): number {
  const sorted = [...samples].sort((a, b) => a - b)
  const value = sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))]
  if (value === undefined) throw new Error('there are no samples')
  return value
}

export const median = (samples: readonly number[]): number => {
  const upper = quantile(samples, 0.5)
  if (samples.length % 2 === 1) return upper
  return (upper + [...samples].sort((a, b) => a - b)[samples.length / 2]!) / 2
}

/** The slope of the straight line that fits the points best (least squares). */
export function slope (points: ReadonlyArray<readonly [x: number, y: number]>): number {
  const mean = (of: 0 | 1): number => points.reduce((sum, point) => sum + point[of], 0) / points.length
  const [x, y] = [mean(0), mean(1)]
  const spread = points.reduce((sum, point) => sum + (point[0] - x) ** 2, 0)
  if (spread === 0) throw new Error('a slope needs two different points')
  return points.reduce((sum, point) => sum + (point[0] - x) * (point[1] - y), 0) / spread
}
