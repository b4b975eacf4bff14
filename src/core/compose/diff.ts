/** What a composition would change, for people and dashboards. */
import type { BusUsers, Composition } from '../../schemas/composition.js'
import type { CompositionDiff, Difference } from '../../schemas/diff.js'
import { canonical } from '../documents.js'

/**
 * The differences between what stands and what is next, in a fixed order; either may be missing. Neither the sealed text
 * nor a user's key is in it: a credential that a plan makes is another one each time, and the same plan must read the same.
 */
export function diffComposition (standing: Composition | undefined, next: Composition | undefined): CompositionDiff {
  return {
    credential: credentialOf(standing, next),
    changes: [
      ...differences('', scalars(standing), scalars(next)),
      ...differences('/config', standing?.config, next?.config),
      ...differences('/bound', standing?.bound, next?.bound),
      ...differences('', secrets(standing), secrets(next)),
      ...userDifferences(standing?.users, next?.users)
    ]
  }
}

type Values = Record<string, unknown>

function credentialOf (standing: Composition | undefined, next: Composition | undefined): CompositionDiff['credential'] {
  if (!next) return standing ? 'removed' : 'none'
  return standing && canonical(standing.credential) === canonical(next.credential) ? 'kept' : 'new'
}

const scalars = (composition?: Composition): Values => composition ? { fp: composition.fp, commit: composition.commit } : {}
const secrets = (composition?: Composition): Values => composition && composition.secrets.length > 0 ? { secrets: composition.secrets } : {}

/** The members of two maps that differ, by key. Keys are anybody's, so they are looked up as own members only. */
function differences (under: string, was: Values = {}, is: Values = {}): Difference[] {
  const keys = [...new Set([...Object.keys(was), ...Object.keys(is)])].sort()
  return keys.flatMap((key): Difference[] => {
    const path = `${under}/${pointer(key)}`
    if (!Object.hasOwn(was, key)) return [{ path, change: 'added', is: is[key] }]
    if (!Object.hasOwn(is, key)) return [{ path, change: 'removed', was: was[key] }]
    return canonical(was[key]) === canonical(is[key]) ? [] : [{ path, change: 'changed', was: was[key], is: is[key] }]
  })
}

function userDifferences (was: BusUsers[] = [], is: BusUsers[] = []): Difference[] {
  const modules = [...new Set([...was, ...is].map(({ module }) => module))].sort()
  return modules.flatMap((module) => {
    const [before, after] = [was, is].map((rows) => rows.find((row) => row.module === module))
    return [
      ...differences(`/users/${module}`, rights(before), rights(after)),
      ...differences(`/users/${module}/users`, keysByNode(before), keysByNode(after)).map(({ path, change }) => ({ path, change }))
    ]
  })
}

const rights = (row?: BusUsers): Values => row ? { publish: row.publish, subscribe: row.subscribe } : {}
const keysByNode = (row?: BusUsers): Values => Object.fromEntries((row?.users ?? []).map(({ node, user }) => [node, user]))

/** A key as a token of a JSON pointer. */
const pointer = (key: string): string => key.replaceAll('~', '~0').replaceAll('/', '~1')
