// `node scripts/run.mjs COMMAND [ARGS…]`: the command line of a clone, made ready first. The command runs in this very
// process, so signals and the exit code are its own. A published package has no scripts/: its `mesh-gateway` is dist's.
import { fileURLToPath } from 'node:url'
import { fail, setUp } from './setup.mjs'

// Only dev starts a bus of its own; the others must not wait for a download that they do not need.
await setUp({ nats: process.argv[2] === 'dev', build: true }).catch(fail)

const cli = new URL('../dist/src/cli.js', import.meta.url)
process.argv[1] = fileURLToPath(cli)
await import(cli.href)
