/** A store that takes the writes of one plan and no other (DESIGN section 6, the POST with `If-Match`). */
import { canonical } from '../documents.js'
import type { BucketName, Store } from '../ports.js'
import type { Planned } from './plan-store.js'

/** The first write that the plan does not have: `another` where it plans another text for the key. */
export interface NotPlanned { bucket: BucketName, key: string, why: 'not in the plan' | 'another text than planned' }

class RefusedWrite extends Error {
  override readonly name = 'RefusedWrite'
  constructor ({ bucket, key, why }: NotPlanned) { super(`writing ${bucket} ${key}: ${why}`) }
}

export class OnlyPlanned {
  #refused: NotPlanned | undefined
  readonly #planned: Map<string, string | undefined>

  constructor (planned: readonly Planned[]) {
    this.#planned = new Map(planned.map(({ bucket, key, text }) => [`${bucket} ${key}`, text === undefined ? undefined : plain(text)]))
  }

  /** The write at which the run stopped; undefined where it kept to the plan. */
  get refused (): NotPlanned | undefined { return this.#refused }

  /** The same store. From the first write that is not planned on, none is taken, but for the record of what was done. */
  around (store: Store): Store {
    return {
      epoch: (bucket) => store.epoch(bucket),
      read: (bucket, key) => store.read(bucket, key),
      readAll: (bucket, filter) => store.readAll(bucket, filter),
      write: async (bucket, key, text, previous) => {
        if (bucket !== 'takeins') this.#check(bucket, key, plain(text))
        return store.write(bucket, key, text, previous)
      },
      purge: async (bucket, key, previous) => {
        this.#check(bucket, key, undefined)
        return store.purge(bucket, key, previous)
      },
      // What nobody sees any more is in no plan.
      erase: (bucket, key, upTo) => store.erase(bucket, key, upTo)
    }
  }

  #check (bucket: BucketName, key: string, text: string | undefined): void {
    const id = `${bucket} ${key}`
    if (!this.#refused) {
      if (this.#planned.has(id) && this.#planned.get(id) === text) return
      this.#refused = { bucket, key, why: this.#planned.has(id) ? 'another text than planned' : 'not in the plan' }
    }
    throw new RefusedWrite(this.#refused)
  }
}

/** A document without what no plan knows: users' keys, which are made anew, and revisions, which are given by the write. */
function plain (text: string): string {
  const { credential, trunk, users, nodes, ...rest } = JSON.parse(text) as Record<string, unknown>
  const isGrant = typeof nodes === 'object' && nodes !== null
  const rows = Array.isArray(users) ? users as Array<{ users: Array<{ node: string }> }> : undefined
  return canonical({
    ...rest,
    users: rows?.map((row) => ({ ...row, users: row.users.map(({ node }) => node) })),
    nodes: isGrant ? Object.keys(nodes).sort() : undefined
  })
}
