/** What a module may do on the bus: which subjects a manifest may name, and what every user may besides (DESIGN section 5). */
import { limits } from '../limits.js'
import { holdsControl, holdsLoneSurrogate } from '../names.js'

/**
 * Why a manifest may not name a subject, as a clause that completes "the subject …"; undefined where it may. nats-server
 * would refuse the whole user list for one malformed subject, so this is at least as strict as its own check; and no
 * subject of a manifest may match one that belongs to the server (`$…`; `_R_…` and `_GR_…`, which it gives to replies between accounts and
 * clusters), the mesh (`mesh.…`) or another module's inbox (`_INBOX…`). The text is not said back.
 */
export function whyNoSubject (subject: string): string | undefined {
  if (subject === '') return 'is empty: name one, such as "orders.created"'
  if (subject.length > limits.subjectCharacters) return `is longer than ${limits.subjectCharacters} characters`
  if (/[ \t\r\n\f]/.test(subject)) return 'holds white space'
  if (holdsControl(subject)) return 'holds a control character'
  if (holdsLoneSurrogate(subject)) return 'holds half a surrogate pair'
  const tokens = subject.split('.')
  if (tokens.includes('')) return 'has an empty token: dots stand between tokens, never at an end or side by side'
  // Inside a longer token `>` and `*` are characters like others.
  if (tokens.indexOf('>') !== -1 && tokens.indexOf('>') < tokens.length - 1) return 'has ">" before its end: it may only be the last token'
  return whyReserved(tokens)
}

/** The first token decides alone: it is what tells the reserved subjects apart, and only a wildcard matches another one. */
function whyReserved ([first = '', ...rest]: string[]): string | undefined {
  if (first === '>' || first === '*') {
    return `would match $…, mesh.… and _INBOX…, which no module may: begin with a token of your own instead of "${first}"`
  }
  if (first.startsWith('$')) return "begins with $, which is the server's own"
  // Who hears _R_.> in the provisioner's account hears the values of all modules whose gateway is in another one.
  if (/^_G?R_/.test(first)) return `begins with ${first.startsWith('_R') ? '_R_' : '_GR_'}, which are the server's own names for replies between accounts`
  if (first.startsWith('_INBOX')) return 'begins with _INBOX: every module has an inbox of its own already, and no other'
  if (first === 'mesh' && rest.length > 0) return "begins with mesh., which is the mesh's own"
  return undefined
}

/** One bus user: whose it is, its public nkey (`U…`), and the subjects of its module's manifest. */
export interface BusUser { module: string, node: string, user: string, publish: readonly string[], subscribe: readonly string[] }

/**
 * All that a user may publish and subscribe to: the manifest's subjects, and what every module needs to read its own values, to be
 * answered, and, where it hears anything, to answer. Allow lists, never empty.
 *
 * Answering is `_INBOX.*.>` and not nats-server's `allow_responses`: that lets whoever receives a message publish to the reply it names,
 * whatever it is, and over every deny. A module that may publish to a subject it hears itself would reach $KV, $JS and mesh with it. An
 * inbox's name cannot be guessed, so nobody is answered who did not ask.
 */
export function userRights ({ module, node, user, publish, subscribe }: BusUser): { publish: string[], subscribe: string[] } {
  const own = `mesh.provision.${node}.${module}`
  return {
    publish: [...publish, `${own}.get`, `${own}.list`, ...(subscribe.length > 0 ? ['_INBOX.*.>'] : [])],
    subscribe: [...subscribe, `_INBOX.${user}.>`, `${own}.changed`]
  }
}
