/**
 * The user list of a nats-server: from the broker module's composition to configuration text (DESIGN section 5). Pure. Rows
 * are checked here again, whoever wrote them: nats-server refuses a whole list for one bad line, and every module would
 * keep its old rights.
 */
import { Value } from '@sinclair/typebox/value'
import { fromPublic } from 'nkeys.js'
import { userRights, whyNoSubject } from '../core/compose/permissions.js'
import { holdsControl, holdsLoneSurrogate, isName, quoted } from '../core/names.js'
import { BusUsersSchema, type BusUsers } from '../schemas/composition.js'

/** A row that was left out: whose it is as far as it can be told, and why. */
export interface Dropped { module: string, node?: string, why: string }

const head = ['# Written by the broker agent, and written over at the next change.', 'users: [']
/** Stands between the fixed users and those of modules, so that the fixed ones can be exchanged alone. */
const divide = '  # The users of modules:'
const userKey = /\bU[A-Z2-7]{55}\b/g

/**
 * A string for nats-server's configuration. Its lexer knows \xXX, \t, \n, \r, \" and \\ and nothing else; a control
 * character would pass it and then stand in a subject, so none is written. Throws where there is one.
 */
export function confString (text: string): string {
  if (holdsControl(text) || holdsLoneSurrogate(text)) throw new Error('holds a character that no configuration can carry')
  return `"${text.replace(/[\\"]/g, '\\$&')}"`
}

/** One direction of a user's rights. An empty allow list would mean everything to nats-server: it is a deny of everything. */
export const confRights = (allowed: readonly string[]): string =>
  allowed.length === 0 ? '{ deny: ">" }' : `{ allow: [${allowed.map(confString).join(', ')}] }`

/** A user that is known by its key, with allow lists that are never empty; a subject a line. Without rights it may do all. */
export function confUser (key: string, rights?: { publish: readonly string[], subscribe: readonly string[] }): string {
  if (!rights) return `{ nkey: ${confString(key)} }`
  const list = (direction: 'publish' | 'subscribe'): string =>
    `  ${direction}: { allow: [\n${rights[direction].map((subject) => `    ${confString(subject)}`).join(',\n')}\n  ] }`
  return `{ nkey: ${confString(key)}, permissions: {\n${list('publish')},\n${list('subscribe')}\n} }`
}

function whyNoUser (user: string): string | undefined {
  if (!/^U[A-Z2-7]{55}$/.test(user)) return 'its user is no public user nkey (U…)'
  try {
    fromPublic(user)
  } catch {
    return 'its user is no valid nkey: the checksum does not fit'
  }
  return undefined
}

function whyNoRow (row: unknown): string | undefined {
  if (!Value.Check(BusUsersSchema, row)) {
    const first = Value.Errors(BusUsersSchema, row).First()
    return `it does not fit${first?.path ? ` at ${first.path.slice(0, 80)}` : ''}`
  }
  for (const direction of ['publish', 'subscribe'] as const) {
    for (const subject of row[direction]) {
      const why = whyNoSubject(subject)
      if (why !== undefined) return `the subject ${quoted(subject)} of ${direction} ${why}`
    }
  }
  return undefined
}

/**
 * The text of the included file: the fixed users as they are, then one user for each module on each node, in a fixed order, so
 * that equal lists have equal bytes. A bad row is left out and costs nobody else anything; so is the second of two rows
 * with one key, since the server knows a key once.
 */
export function renderUserList (fixed: string, rows: readonly unknown[]): { text: string, dropped: Dropped[] } {
  const dropped: Dropped[] = []
  const known = new Set(fixed.match(userKey))
  const lines: string[] = []
  const good: BusUsers[] = []
  for (const row of rows) {
    const why = whyNoRow(row)
    if (why === undefined) good.push(row as BusUsers)
    else {
      const module = (row as { module?: unknown } | null)?.module
      // Only a text is said: an object's own toString may be anything, and must not fail the list.
      dropped.push({ module: isName(module) ? module : typeof module === 'string' ? quoted(module) : 'a module without a name', why })
    }
  }
  good.sort((a, b) => a.module < b.module ? -1 : a.module > b.module ? 1 : 0)
  for (const { module, publish, subscribe, users } of good) {
    for (const { node, user } of [...users].sort((a, b) => a.node < b.node ? -1 : a.node > b.node ? 1 : 0)) {
      const why = whyNoUser(user) ?? (known.has(user) ? 'another user has the same key' : undefined)
      if (why !== undefined) {
        dropped.push({ module, node, why })
        continue
      }
      known.add(user)
      const rights = userRights({ module, node, user, publish, subscribe })
      lines.push(`  # ${module} on ${node}`, `  { nkey: ${confString(user)}, permissions: { publish: ${confRights(rights.publish)}, ` +
        `subscribe: ${confRights(rights.subscribe)} } }`)
    }
  }
  const text = [...head, fixed.trim(), divide, ...lines, ']', ''].join('\n')
  return { text, dropped }
}

/** A rendered list with other fixed users; those of modules stay, byte by byte. Undefined for a text that was not rendered here. */
export function exchangeFixedUsers (text: string, fixed: string): string | undefined {
  // The last one: what the fixed users' file holds may look like anything.
  const at = text.lastIndexOf(`\n${divide}\n`)
  return at < 0 ? undefined : [...head, fixed.trim()].join('\n') + text.slice(at)
}

/** The rows of a composition's text, unchecked; undefined where it carries no list. */
export function rowsOf (composition: unknown): unknown[] | undefined {
  const users = (composition as { users?: unknown } | null)?.users
  return Array.isArray(users) ? users : undefined
}
