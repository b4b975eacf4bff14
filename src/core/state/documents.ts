/** The picture's documents, each read once: what it says, or why it does not fit. */
import type { Static, TSchema } from '@sinclair/typebox'
import { CompositionSchema, GrantSchema } from '../../schemas/composition.js'
import { AssignmentSchema, BindingSchema, NodeSchema, SeatSchema, SettingsSchema, TrunkSchema } from '../../schemas/inventory.js'
import type { Manifest } from '../../schemas/manifest.js'
import { RecordSchema } from '../../schemas/take-in.js'
import { checkManifest } from '../compose/manifest.js'
import { named } from '../documents.js'
import { BadDocument, messageOf } from '../errors.js'
import { fingerprintPrefix, isFingerprint } from '../names.js'
import type { BucketName, Entry } from '../ports.js'
import { heldModule, standing, type HeldModule } from '../take-in/inventory.js'
import type { Picture } from './picture.js'

/** A document as it stands. Neither member: nothing stands there. */
export interface Read<T> { document?: T | undefined, bad?: string }

const nothing = {}

/** A reader that looks at each entry once, however often it is asked. */
function reader<T> (judge: (entry: Entry) => T | undefined): (entry: Entry | undefined) => Read<T> {
  const seen = new WeakMap<Entry, Read<T>>()
  return (entry) => {
    if (!entry || entry.deleted) return nothing
    let known = seen.get(entry)
    if (!known) {
      try {
        known = { document: judge(entry) }
      } catch (error) {
        if (!(error instanceof BadDocument)) throw error
        known = { bad: messageOf(error) }
      }
      seen.set(entry, known)
    }
    return known
  }
}

const of = <S extends TSchema>(bucket: BucketName, schema: S): (entry: Entry | undefined) => Read<Static<S>> =>
  reader((entry) => standing(bucket, entry.key, entry, schema).document)

export const readAssignment = of('inventory', AssignmentSchema)
export const readBinding = of('inventory', BindingSchema)
export const readSeat = of('inventory', SeatSchema)
export const readSettings = of('settings', SettingsSchema)
export const readComposition = of('compositions', CompositionSchema)
export const readGrant = of('grants', GrantSchema)
export const readRecord = of('takeins', RecordSchema)

/** A node's document names the node of its key, or it is none. */
export const readNode = reader((one) => {
  const { document } = standing('inventory', one.key, one, NodeSchema)
  if (document && one.key !== `node.${document.node}`) throw new BadDocument(`inventory ${one.key} names another node, ${document.node}`)
  return document
})

/** A module as others see it, who are bound to what it offers. */
export const readHeld = reader((one): HeldModule | undefined => heldModule(one.key, one).document)

/** The same for the module itself: a document that names another is none of its own. */
export const judgeHeld = reader((one): HeldModule | undefined => {
  const { document } = heldModule(one.key, one)
  if (document && one.key !== `module.${document.module}`) throw new BadDocument(`inventory ${one.key} names another module, ${document.module}`)
  return document
})

/** A registration's manifest: one that was written by hand is checked like any other document. */
export const readManifest = reader((one): Manifest | undefined => {
  const registered = heldModule(one.key, one).document?.registered
  if (registered) checkManifest(one.key.slice('module.'.length), registered.manifest)
  return registered?.manifest
})

/** What a module should be at; `old` where its fingerprint is of a form that is not taken in. */
export const readTrunk = reader((one) => {
  const { document } = standing('trunk', one.key, one, TrunkSchema)
  if (!document) return undefined
  const { fp, commit } = document
  if (!fp.startsWith(fingerprintPrefix)) return { fp, commit, old: true }
  if (!isFingerprint(fp)) throw new BadDocument(`${named('trunk', one.key)} has a fingerprint that is not fp2- and 64 hex digits`)
  return { fp, commit, old: false }
})

/** Whether the catalogue holds a module, by its key alone. */
export const isHeld = (picture: Picture, module: string): boolean => picture.get('inventory', `module.${module}`)?.deleted === false
