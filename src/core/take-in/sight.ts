/**
 * What a run sees of its module, read in two rounds. First every key that the run may write, then everything these are
 * computed from: so no write can put older inputs over newer, since whoever wrote a target after it was read makes the
 * compare-and-set lose (DESIGN section 3). What is written through here is known without another read.
 */
import { Conflict } from '../errors.js'
import type { BucketName, Entry, Store } from '../ports.js'
import { each } from './each.js'
import { hintsOf, seatIn, type Hints } from './hints.js'
import { Inventory } from './inventory.js'
import { Once } from './once.js'

export class Sight {
  #second: Promise<Once> | undefined

  private constructor (
    private readonly store: Store,
    readonly module: string,
    private readonly targets: Map<string, Entry>,
    private readonly hints: Hints
  ) {}

  /** Reads all that a run of the module may write. */
  static async of (store: Store, module: string): Promise<Sight> {
    const targets = new Map<string, Entry>()
    const read = async (bucket: BucketName, key: string): Promise<Entry | undefined> => {
      const entry = await store.read(bucket, key)
      if (entry) targets.set(`${bucket} ${key}`, entry)
      return entry
    }
    const list = async (bucket: BucketName, filter: string): Promise<void> => {
      for (const entry of (await store.readAll(bucket, filter)).values()) targets.set(`${bucket} ${entry.key}`, entry)
    }
    const holder = async (): Promise<void> => {
      const seat = seatIn(await store.read('inventory', 'seat.broker'))
      if (seat) await read('compositions', `${seat.node}.${seat.module}`)
    }
    // The trunk, the assignment and the binding are no targets: they only say what to read in the second round.
    const [trunk, assignment, binding] = await Promise.all([
      store.read('trunk', module), store.read('inventory', `assignment.${module}`), store.read('inventory', `binding.${module}`),
      read('inventory', `module.${module}`), read('takeins', module), list('compositions', `*.${module}`), list('grants', `${module}.*`), holder()
    ])
    return new Sight(store, module, targets, hintsOf(trunk, assignment, binding))
  }

  /** A key of the first round: as it was read, or as it was written since. */
  target (bucket: BucketName, key: string): Entry | undefined { return this.targets.get(`${bucket} ${key}`) }

  /** The keys of a bucket in the first round. */
  all (bucket: BucketName): Entry[] {
    return [...this.targets].filter(([id]) => id.startsWith(`${bucket} `)).map(([, entry]) => entry)
  }

  /** What the targets are computed from, read after all of them, once. */
  async inputs (): Promise<Inventory> { return new Inventory(await this.#inputs()) }

  /** Creation time of a bucket in ms. */
  async epoch (bucket: BucketName): Promise<number> { return (await this.#inputs()).epoch(bucket) }

  /** A key as it is by now, whatever was seen of it. */
  fresh (bucket: BucketName, key: string): Promise<Entry | undefined> { return this.store.read(bucket, key) }

  /** Writes a target; rejects with Conflict where another did so since it was read. */
  async write (bucket: BucketName, key: string, text: string): Promise<number> {
    const revision = await this.store.write(bucket, key, text, this.target(bucket, key)?.revision ?? 0)
    return this.#written(bucket, { key, revision, deleted: false, text })
  }

  /** Removes a target with its history, likewise. */
  async purge (bucket: BucketName, key: string): Promise<number> {
    const revision = await this.store.purge(bucket, key, this.target(bucket, key)?.revision ?? 0)
    return this.#written(bucket, { key, revision, deleted: true, text: '' })
  }

  /**
   * Whether an input, or one of these targets, is another by now than it was seen or written here. A run that found nothing to
   * write leaves no trace that another's compare-and-set would lose against; so at its end every run looks again. Where
   * nothing moved, there was a moment at which all that it saw and wrote stood together.
   */
  async moved (targets: Array<{ bucket: BucketName, key: string }>): Promise<boolean> {
    const inputs = await this.#inputs()
    const [moved, ...others] = await Promise.all([inputs.moved(), ...targets.map(async ({ bucket, key }) =>
      ((await this.store.read(bucket, key))?.revision ?? 0) !== (this.target(bucket, key)?.revision ?? 0))])
    return moved || others.includes(true)
  }

  async #written (bucket: BucketName, entry: Entry): Promise<number> {
    this.targets.set(`${bucket} ${entry.key}`, entry)
    if (bucket === 'inventory') (await this.#inputs()).know(bucket, entry)
    return entry.revision
  }

  #inputs (): Promise<Once> {
    this.#second ??= this.#readInputs()
    return this.#second
  }

  async #readInputs (): Promise<Once> {
    const { module, hints } = this
    const once = new Once(this.store)
    const inventory = [
      'seat.broker', ...['module', 'assignment', 'binding'].map((what) => `${what}.${module}`),
      ...hints.nodes.map((node) => `node.${node}`), ...hints.boundTo.map((name) => `module.${name}`)
    ]
    await Promise.all([
      once.epoch('trunk'), once.epoch('compositions'), once.read('trunk', module), once.read('settings', module),
      ...(hints.fp === undefined ? [] : [once.read('builds', `done.${module}.${hints.fp}`)]),
      each(inventory, async (key) => { await once.read('inventory', key) })
    ])
    return once
  }
}

/** Throws Conflict where a key that is both a target and an input is another in the second round: everything is read again. */
export async function sameInBoth (sight: Sight, bucket: BucketName, key: string, inputs: Inventory): Promise<void> {
  const entry = await inputs.store.read(bucket, key)
  if ((entry?.revision ?? 0) !== (sight.target(bucket, key)?.revision ?? 0)) throw new Conflict(`${bucket} ${key} was written by another`)
}
