/**
 * What each role may do on the bus: exact subjects, as data. `dev` runs with these, `mesh-gateway rights` prints them, and
 * docs/security.md shows the same; what they cannot close is said there.
 *
 * The rule of all: a role has the calls of JetStream that its code makes, on the streams that it reads, and the keys that
 * DESIGN section 5 lets it write. Nobody may delete or purge a stream, change its options, or list what others have made; and
 * single messages are erased by the take-in alone, from the compositions and the grants.
 */
import { isName } from '../core/names.js'
import { bucketNames, type BucketName } from '../core/ports.js'
import { streamOf, subjectOf } from './buckets.js'
import { subjects } from './subjects.js'
import { inboxPrefix } from './user.js'

/** Subjects that a user may publish and subscribe to: allow lists, and nothing besides. */
export interface Rights { publish: string[], subscribe: string[] }

/** Whom the rights are for. */
export interface RightsOf {
  /** The user's public key (`U…`), whose inboxes are its own. */
  user: string
  /** What the names of the buckets start with. */
  prefix: string
  /** The node of a gateway or provisioner. */
  node?: string
  /** The nats-server of a broker agent, as the seat names it. */
  server?: string
}

export const roles = {
  gateway: { about: 'a gateway that serves values and takes nothing in', needs: 'node' },
  'take-in': { about: 'a gateway that takes modules in, too', needs: 'node' },
  provisioner: { about: 'the provisioner of a node', needs: 'node' },
  broker: { about: 'the agent beside a nats-server', needs: 'server' },
  builder: { about: 'what writes done keys', needs: undefined },
  indexer: { about: 'what writes trunk values', needs: undefined },
  operator: { about: 'what writes inventory and settings, and reads all', needs: undefined }
} as const satisfies Record<string, { about: string, needs: 'node' | 'server' | undefined }>

export type Role = keyof typeof roles

/** Calls on one bucket. */
class Calls {
  readonly #stream: string

  constructor (private readonly prefix: string, private readonly bucket: BucketName) { this.#stream = streamOf(prefix, bucket) }

  /** Creation time, and which keys there are. */
  look (): string { return `$JS.API.STREAM.INFO.${this.#stream}` }

  read (): string[] { return [this.look(), `$JS.API.STREAM.MSG.GET.${this.#stream}`] }

  /** One message of its history, whatever the key. */
  erase (): string { return `$JS.API.STREAM.MSG.DELETE.${this.#stream}` }

  make (): string { return `$JS.API.STREAM.CREATE.${this.#stream}` }

  /**
   * The keys that a filter names, live. The filter stands in the subject of the call, and the server compares it with that
   * of the request: no other keys can be had with it.
   */
  follow (filter: string): string[] {
    return [
      this.look(),
      `$JS.API.CONSUMER.CREATE.${this.#stream}.*.${subjectOf(this.prefix, this.bucket, filter)}`,
      `$JS.API.CONSUMER.DELETE.${this.#stream}.*`,
      `$JS.FC.${this.#stream}.>`
    ]
  }

  write (...keys: string[]): string[] { return keys.map((key) => subjectOf(this.prefix, this.bucket, key)) }
}

/** What `nats micro ls` asks, of all services, of those of a name, and of one. */
const serviceQuestions = (name: string): string[] => ['PING', 'INFO', 'STATS'].flatMap((verb) => [`$SRV.${verb}`, `$SRV.${verb}.${name}`, `$SRV.${verb}.${name}.*`])

/** Whoever asks may await the answer in any inbox. */
const answers = '_INBOX.>'

type Make = (of: RightsOf & { node: string, server: string }, bucket: (name: BucketName) => Calls) => Rights

const values: Make = ({ node }) => ({
  publish: [subjects.getOfAll(node), subjects.listOfAll(node)],
  subscribe: [subjects.changedOfAll(node)]
})

const makers: Record<Role, Make> = {
  gateway: values,

  'take-in': (of, bucket) => ({
    publish: [
      ...values(of, bucket).publish,
      ...bucketNames.flatMap((name) => [...bucket(name).read(), bucket(name).make()]),
      ...bucket('trunk').follow('*'),
      ...bucket('builds').follow('done.*.*'),
      ...bucket('inventory').follow('*.*'),
      ...bucket('settings').follow('*'),
      ...bucket('inventory').write('module.*'),
      // For the state alone, which is read from a copy in memory.
      ...bucket('compositions').follow('*.*'),
      ...bucket('grants').follow('*.*'),
      ...bucket('takeins').follow('*'),
      // An operator's setting over HTTP.
      ...bucket('settings').write('*'),
      ...bucket('compositions').write('*.*'),
      // The sealed credential of a composition that was removed must not linger in the history.
      bucket('compositions').erase(),
      ...bucket('grants').write('*.*'),
      // Each build leaves a deleted grant behind: the markers of old ones are swept.
      bucket('grants').erase(),
      ...bucket('takeins').write('*'),
      subjects.appliedOfAll
    ],
    subscribe: values(of, bucket).subscribe
  }),

  provisioner: ({ node }, bucket) => ({
    publish: [...bucket('compositions').follow(`${node}.*`), subjects.changedOfAll(node), answers],
    subscribe: [subjects.getOfAll(node), subjects.listOfAll(node), ...serviceQuestions('mesh-provisioner')]
  }),

  // The composition that it follows is that of whoever has the seat, on any node.
  broker: ({ server }, bucket) => ({
    publish: [...bucket('inventory').follow('seat.broker'), ...bucket('compositions').follow('*.*'), answers],
    subscribe: [subjects.applied(server), ...serviceQuestions('mesh-broker')]
  }),

  builder: (_, bucket) => ({ publish: [...bucket('builds').read(), ...bucket('builds').write('done.*.*')], subscribe: [] }),

  indexer: (_, bucket) => ({ publish: [...bucket('trunk').read(), ...bucket('trunk').write('*')], subscribe: [] }),

  // No consumers: one that delivers what its maker wrote himself to a subject of his choice would get around every other rule.
  operator: (_, bucket) => ({
    publish: [
      ...bucketNames.flatMap((name) => bucket(name).read()),
      ...bucket('inventory').write('module.*', 'assignment.*', 'seat.broker', 'node.*', 'binding.*'),
      ...bucket('settings').write('*')
    ],
    subscribe: []
  })
}

/** The rights of a role. Throws where the node or server that it needs is no name. */
export function rightsOf (role: Role, of: RightsOf): Rights {
  const { needs } = roles[role]
  if (needs !== undefined && !isName(of[needs])) throw new Error(`the rights of ${role} need the name of a ${needs}`)
  const { publish, subscribe } = makers[role]({ node: '', server: '', ...of }, (name) => new Calls(of.prefix, name))
  return { publish: [...new Set(publish)], subscribe: [...new Set([...subscribe, `${inboxPrefix(of.user)}.>`])] }
}
