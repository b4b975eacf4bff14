#!/usr/bin/env node
import { UsageError } from './commands/command.js'
import { main } from './commands/main.js'
import { messageOf } from './core/errors.js'

main(process.argv.slice(2)).catch((error: unknown) => {
  process.stderr.write(`mesh-gateway: ${messageOf(error)}\n`)
  // At once: a connection or a child that is still open must not keep a process that has failed.
  process.exit(error instanceof UsageError ? 2 : 1)
})
