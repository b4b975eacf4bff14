/** The command line: finds the command, checks what was given, and says an error in one line. */
import { parseArgs } from 'node:util'
import { UsageError, type Command, type Given } from './command.js'
import { messageOf } from '../core/errors.js'
import { version } from '../package-info.js'

/** Loaded only when called: a token is minted without the gateway, and the gateway runs without dev. */
const commands: Record<string, { about: string, load (): Promise<{ command: Command }> }> = {
  dev: { about: 'start a bus of its own, a sample mesh and a gateway', load: () => import('./dev.js') },
  serve: { about: 'start a gateway', load: () => import('./serve.js') },
  provisioner: { about: 'answer the values of the modules on a node', load: () => import('./provisioner.js') },
  broker: { about: "apply the bus's users to the nats-server beside it", load: () => import('./broker.js') },
  token: { about: 'print a token, signed with the key in DATA_DIR', load: () => import('./token.js') },
  apply: { about: 'write a mesh description in YAML to the buckets', load: () => import('./apply.js') },
  credential: { about: "print a module's unsealed bus seed", load: () => import('./credential.js') },
  rights: { about: "print a role's user and rights for nats-server's configuration", load: () => import('./rights.js') },
  openapi: { about: 'print the description of the API', load: () => import('./openapi.js') }
}

const column = (rows: Array<[string, string]>): string => {
  const width = Math.max(...rows.map(([left]) => left.length))
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n')
}

const help = (): string => `Usage: mesh-gateway COMMAND [OPTIONS]

Commands:
${column(Object.entries(commands).map(([name, { about }]) => [name, about]))}

"mesh-gateway COMMAND --help" says what a command takes. What it needs to know of its surroundings it reads from environment
variables: docs/configuration.md.
`

function helpOf (name: string, about: string, { positionals = [], options = {} }: Command): string {
  const rows = Object.entries(options).map(([option, { type, about }]): [string, string] => [`--${option}${type === 'string' ? ' …' : ''}`, about])
  return `Usage: mesh-gateway ${[name, ...positionals].join(' ')}${rows.length > 0 ? ' [OPTIONS]' : ''}\n\n${about}\n` +
    (rows.length > 0 ? `\nOptions:\n${column(rows)}\n` : '')
}

/** What was given to a command; throws UsageError. `undefined` asks for help. */
function understand (name: string, { positionals: wanted = [], options = {} }: Command, args: string[]): Given | undefined {
  let parsed
  try {
    parsed = parseArgs({
      args,
      allowPositionals: true,
      options: { help: { type: 'boolean', short: 'h' }, ...Object.fromEntries(Object.entries(options).map(([option, { type }]) => [option, { type }])) }
    })
  } catch (error) {
    // Node adds advice about positional arguments behind the first sentence.
    throw new UsageError(`${name}: ${messageOf(error).split(/\. (?=To specify)/)[0]}`)
  }
  const { positionals, values } = parsed
  if (values.help) return undefined
  if (positionals.length < wanted.length) throw new UsageError(`${name} needs ${wanted.slice(positionals.length).join(' and ')}: mesh-gateway ${name} ${wanted.join(' ')}`)
  if (positionals.length > wanted.length) throw new UsageError(`${name} does not take "${positionals[wanted.length]}"`)
  return { positionals, options: values as Given['options'] }
}

const say = (text: string): void => { process.stdout.write(text) }

/** Runs the command of a command line; rejects with a UsageError where that cannot be understood. */
export async function main ([name, ...args]: string[]): Promise<void> {
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') return say(help())
  if (name === '--version' || name === '-v') return say(`${version}\n`)
  if (!Object.hasOwn(commands, name)) {
    throw new UsageError(`"${name}" is no ${name.startsWith('-') ? 'option' : 'command'}: expected ${Object.keys(commands).join(', ')}, --help or --version`)
  }
  const { about, load } = commands[name]!
  const { command } = await load()
  const given = understand(name, command, args)
  if (!given) return say(helpOf(name, about, command))
  await command.run(given)
}
