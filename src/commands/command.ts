/** What a command is to the command line. */

/** A command line that cannot be understood: one line, and exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export interface Given {
  positionals: string[]
  /** The options that were given; a switch is true. */
  options: Record<string, string | boolean | undefined>
}

export interface Command {
  /** What it takes besides options, such as `FILE`; each is needed. */
  positionals?: string[]
  options?: Record<string, { type: 'string' | 'boolean', about: string }>
  run (given: Given): Promise<void>
}
