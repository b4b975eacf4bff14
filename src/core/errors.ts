/**
 * Each error once, with its HTTP status (DESIGN section 6), its title, and its JSON-RPC code on the watch's socket
 * (DESIGN section 7). `docs/errors.md` lists the same names; a test compares the two.
 */
export const problems = {
  invalid: { status: 400, title: 'The request is not valid', rpc: -32602 },
  unauthenticated: { status: 401, title: 'No valid credential', rpc: -32004 },
  forbidden: { status: 403, title: 'Not for this role', rpc: -32001 },
  origin: { status: 403, title: 'Origin not allowed', rpc: -32001 },
  refused: { status: 403, title: 'The value is refused', rpc: -32001 },
  'not-found': { status: 404, title: 'No such resource', rpc: -32601 },
  'not-declared': { status: 404, title: 'The value is not declared', rpc: -32001 },
  'not-held': { status: 404, title: 'The module is not in the catalogue', rpc: -32001 },
  'method-not-allowed': { status: 405, title: 'Method not allowed', rpc: -32601 },
  'plan-changed': { status: 412, title: 'The plan has changed', rpc: -32602 },
  'precondition-failed': { status: 412, title: 'Precondition failed', rpc: -32602 },
  'too-large': { status: 413, title: 'Too large', rpc: -32602 },
  'uri-too-long': { status: 414, title: 'The URL is too long', rpc: -32602 },
  'unsupported-media-type': { status: 415, title: 'Unsupported media type', rpc: -32602 },
  schema: { status: 422, title: 'The value does not fit its schema', rpc: -32602 },
  'upgrade-required': { status: 426, title: 'Upgrade required', rpc: -32600 },
  'too-many-requests': { status: 429, title: 'Too many requests', rpc: -32003 },
  internal: { status: 500, title: 'Internal error', rpc: -32603 },
  'step-failed': { status: 500, title: 'A step of the take-in failed', rpc: -32603 },
  'bad-answer': { status: 502, title: "The provisioner's answer was broken", rpc: -32002 },
  unavailable: { status: 503, title: 'Not available now', rpc: -32002 },
  overloaded: { status: 503, title: 'Overloaded', rpc: -32002 },
  timeout: { status: 504, title: 'No answer in time', rpc: -32002 }
} as const

export type ProblemName = keyof typeof problems

interface Options { cause?: unknown, members?: Record<string, unknown>, retryAfterS?: number }

/** An error that reaches the user: its problem's name, one sentence for `detail`, further members for the problem object. */
export class MeshError extends Error {
  override readonly name = 'MeshError'
  readonly members: Record<string, unknown>
  /** Seconds for `Retry-After`, on the problems that bear one. */
  readonly retryAfterS: number | undefined

  constructor (readonly problem: ProblemName, detail: string, { cause, members = {}, retryAfterS }: Options = {}) {
    super(detail, cause === undefined ? {} : { cause })
    this.members = members
    this.retryAfterS = retryAfterS ?? (problem === 'unavailable' || problem === 'overloaded' ? 1 : undefined)
  }

  get status (): number { return problems[this.problem].status }
}

/** A compare-and-set write lost against another writer: no fault, the writer reads and computes again (DESIGN section 3). */
export class Conflict extends Error {
  override readonly name = 'Conflict'
}

/** A fault that may be gone in a moment (a timeout, no leader, a cut connection): tried again a few times, briefly. */
export class Transient extends Error {
  override readonly name = 'Transient'
}

/** A document that does not fit: what is wrong in which document, for whoever wrote it (DESIGN section 3). */
export class BadDocument extends Error {
  override readonly name = 'BadDocument'
}

/** The text of whatever was thrown. */
export const messageOf = (error: unknown): string => error instanceof Error ? error.message : String(error)

/** Any error as one that the catalogue has; what it does not know is `internal`, and its text stays here. */
export function asMeshError (error: unknown): MeshError {
  return error instanceof MeshError ? error : new MeshError('internal', 'the gateway failed; its log says why', { cause: error })
}
