/** Where a page begins, and how much is on it. */
export interface Paging { after?: string, limit: number }

export interface PageOf<T> { items: T[], total: number, next?: string }

/** One page of items that are in the order of their names. `next` is left out on the last. */
export function pageOf<T> (all: readonly T[], nameOf: (item: T) => string, { after, limit }: Paging): PageOf<T> {
  const left = after === undefined ? all : all.filter((item) => nameOf(item) > after)
  const items = left.slice(0, limit)
  const last = items.at(-1)
  return { items, total: all.length, ...(left.length > limit && last !== undefined ? { next: nameOf(last) } : {}) }
}
