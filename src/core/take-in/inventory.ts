/** The documents that a take-in reads, each from the stream's leader and checked against its schema. */
import type { Static, TSchema } from '@sinclair/typebox'
import { CompositionSchema, GrantSchema } from '../../schemas/composition.js'
import {
  AssignmentSchema, BindingSchema, DoneSchema, HeldSchema, NodeSchema, RegisteredSchema, SeatSchema, SettingsSchema, TrunkSchema, type Registered
} from '../../schemas/inventory.js'
import { judged } from './judged.js'
import { named } from '../documents.js'
import type { BucketName, Entry } from '../ports.js'
import type { Reading } from './once.js'

/** A key as it stands: its revision (0: never written) and its document; `deleted` says that a marker stands in its place. */
export interface Standing<T> { revision: number, deleted: boolean, document: T | undefined }

const nothing = { revision: 0, deleted: false, document: undefined }

/** An entry's document; throws BadDocument where one stands that does not fit. */
export function standing<S extends TSchema> (bucket: BucketName, key: string, entry: Entry | undefined, schema: S): Standing<Static<S>> {
  if (!entry) return nothing
  const { revision, deleted, text } = entry
  return { revision, deleted, document: deleted ? undefined : judged(named(bucket, key), text, schema) }
}

/** A module of the catalogue: held, and registered where it was taken in. */
export interface HeldModule { module: string, registered: Registered | undefined }

/** Judges `inventory module.M`: a document with a fingerprint is a registration and must be whole. */
export function heldModule (key: string, entry: Entry | undefined): Standing<HeldModule> {
  const held = standing('inventory', key, entry, HeldSchema)
  const { document } = held
  if (!document || !entry) return { ...held, document: undefined }
  const registered = 'fp' in document ? judged(named('inventory', key), entry.text, RegisteredSchema) : undefined
  return { ...held, document: { module: document.module, registered } }
}

export class Inventory {
  constructor (readonly store: Reading) {}

  trunk = async (module: string) => this.#read('trunk', module, TrunkSchema)
  done = async (module: string, fp: string) => this.#read('builds', `done.${module}.${fp}`, DoneSchema)
  assignment = async (module: string) => this.#read('inventory', `assignment.${module}`, AssignmentSchema)
  seat = async () => this.#read('inventory', 'seat.broker', SeatSchema)
  node = async (node: string) => this.#read('inventory', `node.${node}`, NodeSchema)
  binding = async (module: string) => this.#read('inventory', `binding.${module}`, BindingSchema)
  settings = async (module: string) => this.#read('settings', module, SettingsSchema)
  composition = async (node: string, module: string) => this.#read('compositions', `${node}.${module}`, CompositionSchema)
  grant = async (module: string, fp: string) => this.#read('grants', `${module}.${fp}`, GrantSchema)

  async module (module: string): Promise<Standing<HeldModule>> {
    const key = `module.${module}`
    return heldModule(key, await this.store.read('inventory', key))
  }

  async #read<S extends TSchema> (bucket: BucketName, key: string, schema: S): Promise<Standing<Static<S>>> {
    return standing(bucket, key, await this.store.read(bucket, key), schema)
  }
}
