/**
 * What a run sees of its module, read in two rounds. First every key that the run may write, then everything these are
 * computed from: so no write can put older inputs over newer, since whoever wrote a target after it was read makes the
 * compare-and-set lose (DESIGN section 3). What is written through here is known without another read.
 */
import { Conflict } from '../errors.js'
import type { BucketName, Entry, Store } from '../ports.js'
import { each } from './each.js'
import { hintsOf, type Hints } from './hints.js'
import { Inventory } from './inventory.js'
import { Once } from './once.js'

/** What a run knows whatever it sees. */
export interface KnownBefore {
  /** Key of the broker module's composition, as far as this process knows. */
  holder?: string | undefined
  /** Nodes whose composition this run wrote where none stood, and its revision: an older one that a grant names was removed. */
  remade: Map<string, number>
}

export class Sight {
  #second: Promise<Once> | undefined
  readonly #written = new Set<string>()

  private constructor (
    private readonly store: Store,
    readonly module: string,
    /** Creation time in ms of the bucket that the compositions were read from. */
    readonly epoch: number,
    private readonly targets: Map<string, Entry>,
    private readonly hints: Hints,
    private readonly known: KnownBefore
  ) {}

  /** Reads all that a run of the module may write, but for the broker module's composition, which all runs share. */
  static async of (store: Store, module: string, known: KnownBefore = { remade: new Map() }): Promise<Sight> {
    const targets = new Map<string, Entry>()
    const know = (bucket: BucketName, entry: Entry | undefined): void => { if (entry) targets.set(`${bucket} ${entry.key}`, entry) }
    // The trunk is no target: it says which done key to read in the second round.
    const [trunk, held, record, compositions, grants] = await Promise.all([
      store.read('trunk', module), store.read('inventory', `module.${module}`), store.read('takeins', module),
      store.readAll('compositions', `*.${module}`), store.readAll('grants', `${module}.*`)
    ])
    know('inventory', held)
    know('takeins', record)
    for (const entry of compositions.values()) know('compositions', entry)
    for (const entry of grants.values()) know('grants', entry)
    return new Sight(store, module, compositions.epoch, targets, hintsOf(trunk, held, compositions.values()), known)
  }

  /** A key of the first round: as it was read, or as it was written since. */
  target (bucket: BucketName, key: string): Entry | undefined { return this.targets.get(`${bucket} ${key}`) }

  /** The keys of a bucket in the first round. */
  all (bucket: BucketName): Entry[] {
    return [...this.targets].filter(([id]) => id.startsWith(`${bucket} `)).map(([, entry]) => entry)
  }

  /** What the targets are computed from, read after all of them, once. */
  async inputs (): Promise<Inventory> { return new Inventory(await this.#inputs()) }

  /** Creation time of the trunk's bucket in ms. */
  async trunkEpoch (): Promise<number> { return (await this.#inputs()).epoch('trunk') }

  /** A key as it is by now, whatever was seen of it. */
  fresh (bucket: BucketName, key: string): Promise<Entry | undefined> { return this.store.read(bucket, key) }

  /** See `KnownBefore`. */
  get remade (): Map<string, number> { return this.known.remade }

  /** Writes a target; rejects with Conflict where another did so since it was read. */
  async write (bucket: BucketName, key: string, text: string): Promise<number> {
    const revision = await this.store.write(bucket, key, text, this.target(bucket, key)?.revision ?? 0)
    return this.#wrote(bucket, { key, revision, deleted: false, text })
  }

  /** Removes a target with its history, likewise. */
  async purge (bucket: BucketName, key: string): Promise<number> {
    const revision = await this.store.purge(bucket, key, this.target(bucket, key)?.revision ?? 0)
    return this.#wrote(bucket, { key, revision, deleted: true, text: '' })
  }

  /** Removes what is stored under a key that was a marker in the first round, up to a revision. */
  erase (bucket: BucketName, key: string, upTo: number): Promise<void> { return this.store.erase(bucket, key, upTo) }

  /**
   * Whether an input, or one of these targets where it was left as it is, is another by now. A run that found nothing to write leaves no
   * trace that another's compare-and-set would lose against; so at its end every run looks again. Where nothing moved, there was
   * a moment at which all that it saw and wrote stood together. The seat only says what is left to another step, and a
   * fingerprint has one build: these need no second look.
   */
  async moved (targets: Array<{ bucket: BucketName, key: string }>): Promise<boolean> {
    const left = targets.filter(({ bucket, key }) => !this.#written.has(`${bucket} ${key}`))
    const inputs = await this.#inputs()
    const [moved, ...others] = await Promise.all([inputs.moved(['trunk', 'inventory', 'settings'], ['seat.broker']), ...left.map(async ({ bucket, key }) =>
      ((await this.store.read(bucket, key))?.revision ?? 0) !== (this.target(bucket, key)?.revision ?? 0))])
    return moved || others.includes(true)
  }

  async #wrote (bucket: BucketName, entry: Entry): Promise<number> {
    const id = `${bucket} ${entry.key}`
    if (bucket === 'compositions' && (this.targets.get(id)?.deleted ?? true)) {
      this.remade.set(entry.key.slice(0, entry.key.indexOf('.')), entry.revision)
    }
    this.targets.set(id, entry)
    this.#written.add(id)
    if (bucket === 'inventory') (await this.#inputs()).know(bucket, entry)
    return entry.revision
  }

  #inputs (): Promise<Once> {
    this.#second ??= this.#readInputs()
    return this.#second
  }

  /** Most of what the steps will ask for, at once; what is missing here is read when it is asked for, which is later still. */
  async #readInputs (): Promise<Once> {
    const { module, hints, known: { holder } } = this
    const once = new Once(this.store)
    const inventory = [
      'seat.broker', `module.${module}`, `assignment.${module}`, ...hints.isBound ? [`binding.${module}`] : [], ...hints.nodes.map((node) => `node.${node}`)
    ]
    await Promise.all([
      once.read('trunk', module), once.read('settings', module),
      ...holder === undefined ? [] : [once.read('compositions', holder)],
      ...hints.fp === undefined ? [] : [once.read('builds', `done.${module}.${hints.fp}`), once.epoch('trunk')],
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
