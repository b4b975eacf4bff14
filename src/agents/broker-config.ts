/** The variables of the agent beside a nats-server; the bus and the mesh are named by the gateway's (`src/config.ts`). */
import { Type, type Static } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { ConfigError } from '../config.js'
import { printable } from '../core/names.js'
import { Name } from '../schemas/common.js'

const Path = (description: string) => Type.String({ minLength: 1, description })

export const BrokerEnvironmentSchema = Type.Object({
  BROKER_SERVER: Name({ description: "the server's name, as the seat has it: asks come to it" }),
  BROKER_CONFIG: Path("the server's main configuration file, which includes the user list"),
  BROKER_USERS: Path('the included file that this agent writes: the user list'),
  BROKER_FIXED_USERS: Path('a file with the users that are not of modules, one { … } after the other as nats-server takes them'),
  BROKER_PID_FILE: Path("the server's pid file"),
  BROKER_MONITOR_URL: Type.String({ pattern: '^https?://[^\\s/]+/?$', description: "the server's monitoring address, such as http://127.0.0.1:8222" }),
  BROKER_NATS_SERVER: Type.String({ default: 'nats-server', minLength: 1, description: 'the nats-server program that checks a configuration' })
})
export type BrokerEnvironment = Static<typeof BrokerEnvironmentSchema>

/** Reads and checks the agent's variables; throws ConfigError at the first that is missing or does not fit. */
export function loadBrokerConfig (env: NodeJS.ProcessEnv): BrokerEnvironment {
  const given: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries(BrokerEnvironmentSchema.properties)) {
    // An empty variable is one that was left out, as in src/config.ts.
    const value = env[name] || schema.default
    if (value === undefined) throw new ConfigError(`${name} is not set, but it is needed: ${schema.description}`)
    if (!Value.Check(schema, value)) {
      throw new ConfigError(`${name} is ${JSON.stringify(printable(String(value)))}, but it takes a text that matches ${String(schema.pattern)} (${schema.description})`)
    }
    given[name] = value
  }
  return given as BrokerEnvironment
}
