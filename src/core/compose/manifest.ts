/** What a manifest must keep beyond its schema, and what its config keys accept. */
import { LRUCache } from 'lru-cache'
import type { Manifest } from '../../schemas/manifest.js'
import { canonical } from '../documents.js'
import { BadDocument, messageOf } from '../errors.js'
import { limits } from '../limits.js'
import { quoted, whyNoKey } from '../names.js'
import { whyNoSubject } from './permissions.js'
import { checkOf, type Check, type JsonSchema, type Misfit } from './value-schema.js'

type ConfigEntry = NonNullable<Manifest['config']>[string]

/**
 * Throws BadDocument, one sentence that names the key or subject, where a manifest that fits its schema cannot be taken
 * in: it is another module's, a key is none, a schema does not compile, a default does not fit its schema, a permission
 * names a subject it may not, or something stands twice.
 */
export function checkManifest (module: string, manifest: Manifest): void {
  // The user list is made of every module's manifest, over and over: one that passed passes again, and a check of a value takes a while.
  const text = `${module} ${canonical(manifest)}`
  if (passed.has(text)) return
  judge(module, manifest)
  passed.set(text, true)
}

const passed = new LRUCache<string, true>({
  max: limits.manifestsPassed, maxSize: limits.manifestsPassedCharacters, sizeCalculation: (_, text) => text.length
})

function judge (module: string, manifest: Manifest): void {
  const bad = (what: string): never => { throw new BadDocument(`the manifest of ${module} ${what}`) }
  if (manifest.module !== module) bad(`names another module, ${quoted(manifest.module)}`)
  for (const part of ['config', 'bound', 'offers'] as const) {
    for (const [key, entry] of Object.entries(manifest[part] ?? {})) {
      const why = whyNoKey(key)
      if (why !== undefined) bad(`does not fit: the key ${quoted(key)} in ${part} ${why}`)
      // The schema's own rule for "any member" passes over a name that holds U+2028 or U+2029.
      if (part !== 'offers' && !isObject(entry)) bad(`does not fit: ${quoted(key)} in ${part} must be an object`)
    }
  }
  for (const key of manifest.secrets ?? []) {
    const why = whyNoKey(key)
    if (why !== undefined) bad(`does not fit: the key ${quoted(key)} in secrets ${why}`)
  }
  const twice = double(manifest.secrets)
  if (twice !== undefined) bad(`names the secret ${quoted(twice)} twice`)
  for (const [key, entry] of Object.entries(manifest.config ?? {})) checkEntry(key, entry, bad)
  const characters = Object.values(manifest.permissions ?? {}).flat().join('').length
  if (characters > limits.permissionsCharacters) {
    bad(`has permissions of ${characters} characters together, but all modules' users share one message of the bus: ${limits.permissionsCharacters} is the most. Use wildcards`)
  }
  for (const direction of ['publish', 'subscribe'] as const) {
    const subjects = manifest.permissions?.[direction] ?? []
    for (const subject of subjects) {
      const why = whyNoSubject(subject)
      if (why !== undefined) bad(`may not ${direction} as it asks: the subject ${quoted(subject)} ${why}`)
    }
    const repeated = double(subjects)
    if (repeated !== undefined) bad(`names the subject ${quoted(repeated)} twice in permissions.${direction}`)
  }
}

/**
 * Why a setting cannot stand, with the path and the rule; undefined where it can. The value must have come through
 * `parseJson`, which bounds its depth and its numbers.
 */
export function judgeSetting (manifest: Manifest, key: string, value: unknown): Misfit | undefined {
  const entry = own(manifest.config, key)
  if (!isObject(entry)) return { said: `the manifest of ${manifest.module} declares no config key ${quoted(key)}` }
  let check: Check | undefined
  try {
    check = schemaOf(entry)
  } catch (error) {
    return { said: `the schema of config ${quoted(key)} in the manifest of ${manifest.module} ${messageOf(error)}` }
  }
  return check?.(value)
}

/** The same as one sentence. */
export const checkSetting = (manifest: Manifest, key: string, value: unknown): string | undefined => judgeSetting(manifest, key, value)?.said

/** A member of a map whose keys are anybody's: `__proto__` or `constructor` is found only where it was written. */
export const own = <T>(map: Record<string, T> | undefined, key: string): T | undefined =>
  map !== undefined && Object.hasOwn(map, key) ? map[key] : undefined

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null && !Array.isArray(value)

const double = (texts: readonly string[] = []): string | undefined => {
  const seen = new Set<string>()
  return texts.find((text) => seen.size === seen.add(text).size)
}

const schemaOf = (entry: ConfigEntry): Check | undefined =>
  Object.hasOwn(entry, 'schema') ? checkOf(entry.schema as JsonSchema) : undefined

function checkEntry (key: string, entry: ConfigEntry, bad: (what: string) => never): void {
  let check: Check | undefined
  try {
    check = schemaOf(entry)
  } catch (error) {
    return bad(`does not fit: the schema of config ${quoted(key)} ${messageOf(error)}`)
  }
  if (!Object.hasOwn(entry, 'default')) return
  const why = check?.(entry.default)?.said
  if (why !== undefined) bad(`does not fit: the default of config ${quoted(key)} is refused by its own schema: ${why}`)
}
