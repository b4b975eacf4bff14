/** The steps up to the registration: is the module held, what should it be at, is it, and if not, register it. */
import { checkManifest } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { BadDocument } from '../errors.js'
import { fingerprintPrefix, isFingerprint, sameCommit } from '../names.js'
import { formatRevision } from '../revision.js'
import type { Registered } from '../../schemas/inventory.js'
import type { Inventory } from './inventory.js'
import type { Steps, TrunkAt } from './take.js'

export const isAt = (registered: Registered | undefined, { fp, commit }: { fp: string, commit: string }): boolean =>
  registered !== undefined && registered.fp === fp && sameCommit(registered.commit, commit)

/** The trunk value as the leader has it; throws BadDocument where one stands that does not fit. */
export async function readTrunk (inventory: Inventory, module: string): Promise<TrunkAt | { old: string } | undefined> {
  const [epoch, { document, revision }] = await Promise.all([inventory.store.epoch('trunk'), inventory.trunk(module)])
  if (!document) return undefined
  const { fp, commit } = document
  if (!fp.startsWith(fingerprintPrefix)) return { old: fp }
  if (!isFingerprint(fp)) throw new BadDocument(`trunk ${module} has a fingerprint that is not fp2- and 64 hex digits`)
  return { fp, commit, revision: { epoch, revision } }
}

export async function readHeld (inventory: Inventory, module: string): Promise<'held' | 'removed' | 'absent'> {
  const { document, deleted } = await inventory.module(module)
  if (document && document.module !== module) throw new BadDocument(`inventory module.${module} names another module, ${document.module}`)
  return document ? 'held' : deleted ? 'removed' : 'absent'
}

/**
 * Registers the module from the done key of the trunk's fingerprint. The target's revision is read first, then the trunk again:
 * whatever came between makes the write lose, and the step is run again on what stands by then.
 */
export async function register (inventory: Inventory, module: string, trunk: TrunkAt): ReturnType<Steps['takeIn']> {
  const target = await inventory.module(module)
  if (!target.document) return 'moved' // removed meanwhile: the run looks again
  // A done key that does not fit is no fault of a run that has to look again first.
  const done = inventory.done(module, trunk.fp)
  done.catch(() => undefined)
  const now = await readTrunk(inventory, module)
  if (!now || 'old' in now || now.fp !== trunk.fp || !sameCommit(now.commit, trunk.commit)) return 'moved'
  if (isAt(target.document.registered, trunk)) return 'already'
  const { document: build } = await done
  if (!build) return 'waiting'
  if (build.fp !== trunk.fp) throw new BadDocument(`builds done.${module}.${trunk.fp} names another fingerprint inside, ${build.fp}`)
  checkManifest(module, build.manifest)
  const document: Registered = {
    module, fp: trunk.fp, commit: trunk.commit, trunk: formatRevision(now.revision), manifest: build.manifest
  }
  await inventory.store.write('inventory', `module.${module}`, canonical(document), target.revision)
  return 'registered'
}
