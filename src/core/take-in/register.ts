/** The steps up to the registration: is the module held, what should it be at, is it, and if not, register it. */
import { checkManifest } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { BadDocument } from '../errors.js'
import { fingerprintPrefix, isFingerprint, sameCommit } from '../names.js'
import { formatRevision } from '../revision.js'
import type { Registered } from '../../schemas/inventory.js'
import { heldModule } from './inventory.js'
import { sameInBoth, type Sight } from './sight.js'
import type { Steps, TrunkAt } from './take.js'

export const isAt = (registered: Registered | undefined, { fp, commit }: { fp: string, commit: string }): boolean =>
  registered !== undefined && registered.fp === fp && sameCommit(registered.commit, commit)

/** The trunk value as the leader has it; throws BadDocument where one stands that does not fit. */
export async function readTrunk (sight: Sight): Promise<TrunkAt | { old: string } | undefined> {
  const { document } = await (await sight.inputs()).trunk(sight.module)
  if (!document) return undefined
  const { fp, commit } = document
  if (!fp.startsWith(fingerprintPrefix)) return { old: fp }
  if (!isFingerprint(fp)) throw new BadDocument(`trunk ${sight.module} has a fingerprint that is not fp2- and 64 hex digits`)
  return { fp, commit }
}

/** What the catalogue says of the module, of the first round. */
export function heldIn (sight: Sight): ReturnType<typeof heldModule> {
  const key = `module.${sight.module}`
  const held = heldModule(key, sight.target('inventory', key))
  const { document } = held
  if (document && document.module !== sight.module) throw new BadDocument(`inventory ${key} names another module, ${document.module}`)
  return held
}

/** Registers the module from the done key of the trunk's fingerprint. */
export async function register (sight: Sight, trunk: TrunkAt): ReturnType<Steps['takeIn']> {
  const { module } = sight
  const inputs = await sight.inputs()
  await sameInBoth(sight, 'inventory', `module.${module}`, inputs)
  const { document: held } = await inputs.module(module)
  if (!held) return 'moved' // removed meanwhile: the run looks again
  const now = await readTrunk(sight)
  if (!now || 'old' in now || now.fp !== trunk.fp || !sameCommit(now.commit, trunk.commit)) return 'moved'
  if (isAt(held.registered, trunk)) return 'already'
  const { document: build } = await inputs.done(module, trunk.fp)
  if (!build) return 'waiting'
  if (build.fp !== trunk.fp) throw new BadDocument(`builds done.${module}.${trunk.fp} names another fingerprint inside, ${build.fp}`)
  checkManifest(module, build.manifest)
  const { revision } = await inputs.trunk(module)
  const document: Registered = {
    module, fp: trunk.fp, commit: trunk.commit, trunk: formatRevision({ epoch: await sight.trunkEpoch(), revision }), manifest: build.manifest
  }
  await sight.write('inventory', `module.${module}`, canonical(document))
  return 'registered'
}
