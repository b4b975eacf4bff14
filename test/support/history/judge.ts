/** Judges what the buckets took against the promises of a take-in (DESIGN section 3). Pure: a history in, the broken promises out. */
import { canonical } from '../../../src/core/documents.js'
import { formatRevision } from '../../../src/core/revision.js'
import type { Composition, Grant } from '../../../src/schemas/composition.js'
import type { Registered } from '../../../src/schemas/inventory.js'
import type { Took } from './record.js'

export interface Judged {
  epoch: number
  /** The broker module's composition, whose writes are not counted: all modules' take-ins share it. */
  holder?: string
  /** The most writes of one composition for each registration of its module. */
  mostWrites?: number
}

const parse = (text: string | undefined): unknown => text === undefined ? undefined : JSON.parse(text)
const short = (fp: unknown): string => String(fp).slice(0, 12)

/** What is wrong with a history, a sentence each; empty where it keeps every promise. */
export function judge (took: readonly Took[], { epoch, holder, mostWrites = Infinity }: Judged): string[] {
  return [...registeredOnce(took), ...grantsCarried(took, epoch), ...nothingTwice(took), ...fewWrites(took, holder, mostWrites)]
}

const of = (took: readonly Took[], bucket: Took['bucket']): Took[] => took.filter((one) => one.bucket === bucket)

/** A module is registered once for each time that it moves, never twice for the same. */
function registeredOnce (took: readonly Took[]): string[] {
  const wrong: string[] = []
  const last = new Map<string, string>()
  for (const { key, text, revision } of of(took, 'inventory')) {
    if (!key.startsWith('module.')) continue
    const document = parse(text) as Partial<Registered> | undefined
    const at = document?.fp === undefined ? '' : `${document.fp} ${document.commit}`
    if (at !== '' && last.get(key) === at) wrong.push(`${key} was registered at ${short(document?.fp)} twice, again at revision ${revision}`)
    last.set(key, at)
  }
  return wrong
}

/** A grant names revisions that were there when it was written, and that carried its fingerprint. */
function grantsCarried (took: readonly Took[], epoch: number): string[] {
  const wrong: string[] = []
  const compositions = new Map<string, Composition>()
  for (const { bucket, key, revision, text } of took) {
    if (bucket === 'compositions' && text !== undefined) compositions.set(`${key} ${formatRevision({ epoch, revision })}`, parse(text) as Composition)
    if (bucket !== 'grants' || text === undefined) continue
    const grant = parse(text) as Grant
    if (Object.keys(grant.nodes).length === 0) wrong.push(`the grant of ${grant.module} at revision ${revision} names no node`)
    for (const [node, named] of Object.entries(grant.nodes)) {
      const composition = compositions.get(`${node}.${grant.module} ${named}`)
      const what = `the grant of ${grant.module} at ${short(grant.fp)} names revision ${named} of ${node}.${grant.module}`
      if (!composition) wrong.push(`${what}, which was not there when it was written`)
      else if (composition.fp !== grant.fp) wrong.push(`${what}, which carried ${short(composition.fp)}`)
    }
  }
  return wrong
}

/** A composition or grant that equals the one that stands is not written. */
function nothingTwice (took: readonly Took[]): string[] {
  const wrong: string[] = []
  const last = new Map<string, string | undefined>()
  for (const { bucket, key, revision, text } of took) {
    if (bucket === 'inventory') continue
    const name = `${bucket} ${key}`
    if (last.has(name) && last.get(name) === text) wrong.push(`${name} was written as it stood, at revision ${revision}`)
    last.set(name, text)
  }
  return wrong
}

/** Gateways that find work done do not do it again. */
function fewWrites (took: readonly Took[], holder: string | undefined, most: number): string[] {
  const registrations = new Map<string, number>()
  const writes = new Map<string, number>()
  for (const { bucket, key, text } of took) {
    if (bucket === 'inventory' && key.startsWith('module.') && text?.includes('"fp"')) {
      const module = key.slice('module.'.length)
      registrations.set(module, (registrations.get(module) ?? 0) + 1)
    }
    if (bucket === 'compositions' && key !== holder) writes.set(key, (writes.get(key) ?? 0) + 1)
  }
  return [...writes].filter(([key, count]) => count > most * (registrations.get(key.slice(key.indexOf('.') + 1)) ?? 0))
    .map(([key, count]) => `${key} was written ${count} times for ${registrations.get(key.slice(key.indexOf('.') + 1)) ?? 0} registrations`)
}

type Standing = Record<string, unknown>

/**
 * What stands in the end, with all that two runs make anew each left out (credentials, revisions): equal for two histories that end alike.
 */
export function standing (took: readonly Took[]): Standing {
  const last = new Map<string, string | undefined>()
  for (const { bucket, key, text } of took) last.set(`${bucket} ${key}`, text)
  const entries = [...last].filter(([, text]) => text !== undefined).map(([name, text]): [string, unknown] => [name, bare(parse(text) as Standing)])
  return Object.fromEntries(entries.filter(([name]) => !name.startsWith('inventory node.')).sort(([a], [b]) => a < b ? -1 : 1))
}

function bare ({ credential, trunk, ...document }: Standing): Standing {
  const { nodes, users } = document
  if (users) document.users = (users as Composition['users'])?.map(({ users, ...row }) => ({ ...row, users: users.map(({ node }) => node).sort() }))
  // A grant's revisions differ from run to run; which nodes it names does not.
  if (nodes && !Array.isArray(nodes)) document.nodes = Object.keys(nodes).sort()
  return document
}

/** Where two ends differ: the names, and what each has there. */
export function differences (a: Standing, b: Standing): string[] {
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].sort()
    .filter((name) => canonical(a[name] ?? null) !== canonical(b[name] ?? null))
    .map((name) => `${name}: ${JSON.stringify(a[name])?.slice(0, 300)} is not ${JSON.stringify(b[name])?.slice(0, 300)}`)
}
