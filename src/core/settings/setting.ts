/** One setting of a module: what changes it, under which condition, and what the bucket's document is then. */
import { createHash } from 'node:crypto'
import type { Manifest } from '../../schemas/manifest.js'
import type { Settings } from '../../schemas/inventory.js'
import { judgeSetting, own } from '../compose/manifest.js'
import { canonical } from '../documents.js'
import { MeshError } from '../errors.js'
import { limits } from '../limits.js'
import { quoted } from '../names.js'

/** A new value, or (without one) back to the default. */
export interface Change { key: string, value?: { is: unknown } }

/** What `If-Match` and `If-None-Match` ask of the setting that stands; undefined stands for none. Throws nothing. */
export type Condition = (etag: string | undefined) => boolean

/** The ETag of a setting: the same as long as its value is. */
export const settingTag = (value: unknown): string => `"${createHash('sha256').update(canonical(value)).digest('base64url').slice(0, 22)}"`

/** What stands, as an answer tells it. */
export function settingOf (settings: Settings, key: string): { set: boolean, value?: unknown, etag?: string } {
  if (!Object.hasOwn(settings, key)) return { set: false }
  return { set: true, value: settings[key], etag: settingTag(settings[key]) }
}

/**
 * The settings as they are after a change; undefined where they are the same. Throws a MeshError: `not-declared`,
 * `precondition-failed`, `schema` (with `path` and `rule`) or `too-large`.
 */
export function changed (
  module: string, manifest: Manifest | undefined, settings: Settings, { key, value }: Change, holds: Condition
): Settings | undefined {
  const declared = own(manifest?.config, key)
  const stands = settingOf(settings, key)
  // What an older manifest left behind can still be taken away.
  if (!declared && (value || !stands.set)) throw notDeclared(module, manifest, key)
  if (!holds(stands.etag)) {
    const what = stands.set ? `the setting of config ${quoted(key)} of ${module} is another` : `config ${quoted(key)} of ${module} has no setting`
    throw new MeshError('precondition-failed', `${what} than the request asks for: read it again`, { members: { module, key, ...stands } })
  }
  if (!value) {
    if (!stands.set) return undefined
    if (declared && !Object.hasOwn(declared, 'default')) {
      throw new MeshError('schema', `config ${quoted(key)} of ${module} has no default to go back to: set another value`)
    }
    return Object.fromEntries(Object.entries(settings).filter(([one]) => one !== key))
  }
  const misfit = judgeSetting(manifest as Manifest, key, value.is)
  if (misfit) {
    const { said, ...members } = misfit
    throw new MeshError('schema', `config ${quoted(key)} of ${module} does not take that: ${said}`, { members })
  }
  if (stands.set && canonical(stands.value) === canonical(value.is)) return undefined
  // From entries: an assignment would lose a key that is called `__proto__`.
  const next = Object.fromEntries([...Object.entries(settings).filter(([one]) => one !== key), [key, value.is]])
  const bytes = Buffer.byteLength(canonical(next))
  if (bytes > limits.settingsBytes) {
    throw new MeshError('too-large', `with that, the settings of ${module} would be ${bytes} bytes together, and ${limits.settingsBytes} is the most: set less`)
  }
  return next
}

function notDeclared (module: string, manifest: Manifest | undefined, key: string): MeshError {
  if (!manifest) return new MeshError('not-declared', `${module} was never taken in, so no manifest declares config ${quoted(key)}: take it in first`)
  return new MeshError('not-declared', `the manifest of ${module} declares no config key ${quoted(key)}`)
}
