import { limits } from '../limits.js'

/** Does `work` for every item, a bounded number at once. The first error is thrown when all that began have ended. */
export async function each<T> (items: readonly T[], work: (item: T) => Promise<void>, most: number = limits.readsInFlight): Promise<void> {
  const left = [...items].reverse()
  const errors: unknown[] = []
  const worker = async (): Promise<void> => {
    while (left.length > 0 && errors.length === 0) {
      try { await work(left.pop() as T) } catch (error) { errors.push(error) }
    }
  }
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, worker))
  if (errors.length > 0) throw errors[0]
}
