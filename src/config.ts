/** Environment → one typed, checked object (DESIGN section 9). Nothing else reads the environment of a gateway. */
import { readFileSync } from 'node:fs'
import { envSchema } from 'env-schema'
import { Type, type Static } from '@sinclair/typebox'
import { Name, OneOf } from './schemas/common.js'

const Port = (options = {}) => Type.Integer({ minimum: 0, maximum: 65535, ...options })
const Milliseconds = (options = {}) => Type.Integer({ minimum: 1, maximum: 3_600_000, ...options })
/** A text that may be left out; an empty one is the same as none, as shells and unit files write it. */
const Text = (description: string) => Type.Optional(Type.String({ description }))

/** The variables of a gateway and its commands; `docs/configuration.md` lists the same, and a test compares the two. */
export const EnvironmentSchema = Type.Object({
  HOST: Type.String({ default: '127.0.0.1', minLength: 1, description: 'address to listen on' }),
  PORT: Port({ default: 8080, description: 'port to listen on' }),
  OPS_PORT: Type.Optional(Port({ description: 'a port of their own for /livez, /readyz, /metrics and /docs' })),
  PUBLIC_URL: Text('the URL that browsers see'),
  CORS_ORIGINS: Type.String({ default: '', description: 'origins of other web pages that may call, separated by blanks or commas' }),
  DATA_DIR: Type.String({ default: '.data', minLength: 1, description: 'where dev keeps its bus, keys and seeds' }),
  NATS_URL: Text('the bus; several servers separated by commas'),
  NATS_PORT: Port({ default: 4222, description: "the port of dev's own bus" }),
  NATS_CREDS: Text('a credentials file for the bus'),
  NATS_NKEY_SEED_FILE: Text('a file with an nkey seed for the bus'),
  NATS_CA: Text("a PEM file with the bus's certificate authority"),
  MESH_NODE: Type.Optional(Name({ description: 'the node whose provisioner is asked' })),
  MESH_PREFIX: Type.String({ default: 'mesh_', pattern: '^[A-Za-z0-9_-]{0,64}$', description: 'what the names of the buckets start with' }),
  KV_REPLICAS: Type.Integer({ default: 1, minimum: 1, maximum: 5, description: 'replicas of a bucket that is made' }),
  TRUST_DOMAIN: Type.String({ default: 'mesh.local', pattern: '^[a-z0-9._-]{1,255}$', description: 'the SPIFFE trust domain' }),
  AUTH_JWKS: Text('file or URL of the keys that sign credentials'),
  AUTH_ISSUER: Text('the issuer a token must have'),
  AUTH_AUDIENCE: Type.String({ default: 'mesh-gateway', minLength: 1, description: 'the audience a token must hold' }),
  TLS_CERT: Text("a PEM file with the gateway's own certificate and what stands between it and its root"),
  TLS_KEY: Text('a PEM file with the private key of TLS_CERT'),
  TLS_CLIENT_CA: Text('a PEM file with the authorities of client certificates'),
  OPERATOR_JWKS: Text('file or URL of the keys that sign operators and readers, and these alone'),
  OPERATOR_ISSUER: Text("the issuer an operator's token must have"),
  OPERATOR_AUDIENCE: Text("the audience an operator's token must hold"),
  OPERATOR_CLAIM: Type.String({ default: 'scope', minLength: 1, description: 'the claim that holds mesh:operate or mesh:read' }),
  TAKE_IN: OneOf(['auto', 'manual'], { default: 'auto', description: 'whether keys wake take-ins, or only a POST' }),
  ASK_TIMEOUT_MS: Milliseconds({ default: 2000, description: 'how long an ask may take' }),
  DRAIN_MS: Milliseconds({ default: 10_000, description: 'how long draining may take' }),
  SLOW_CLIENT_MS: Milliseconds({ default: 15_000, description: 'how long a connection may read nothing' }),
  MAX_FRAME_BYTES: Type.Integer({ default: 16_384, minimum: 1024, maximum: 1_048_576, description: 'largest message of a WebSocket client' }),
  MAX_WATCHES: Type.Integer({ default: 1000, minimum: 1, maximum: 1_000_000, description: 'watches of one connection' }),
  MAX_CONNECTIONS_PER_MODULE: Type.Integer({ default: 1000, minimum: 1, maximum: 1_000_000, description: 'live connections of one module' }),
  RATE_LIMIT: Type.Integer({ default: 0, minimum: 0, maximum: 1_000_000, description: 'requests a second of one principal; 0 is no limit' }),
  LOG_LEVEL: OneOf(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], { default: 'info', description: 'what is logged' })
})
export type Environment = Static<typeof EnvironmentSchema>

/** Thrown for a missing or wrong variable: one line that names it, what it holds and what it takes. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
}

interface AjvProblem { instancePath: string, keyword: string, params: Record<string, unknown> }

const takes = (property: Record<string, unknown>): string => {
  if (property.enum) return `one of ${(property.enum as string[]).join(', ')}`
  if (property.type === 'integer') return `a whole number from ${String(property.minimum)} to ${String(property.maximum)}`
  if (property.pattern) return `a text that matches ${String(property.pattern)}`
  return 'a text that is not empty'
}

/** Reads and checks the environment; throws ConfigError at the first variable that does not fit. */
export function loadConfig (env: NodeJS.ProcessEnv): Environment {
  // An empty variable is one that was left out: unit files and compose files write it so.
  const given = Object.fromEntries(Object.entries(env).filter(([name, value]) => value !== '' && Object.hasOwn(EnvironmentSchema.properties, name)))
  let config: Environment
  try {
    config = envSchema<Environment>({ schema: EnvironmentSchema, data: given, env: false, dotenv: false })
  } catch (error) {
    const [first] = (error as { errors?: AjvProblem[] }).errors ?? []
    const name = first?.instancePath.slice(1) ?? ''
    const property = (EnvironmentSchema.properties as Record<string, Record<string, unknown>>)[name]
    if (!property) throw error
    throw new ConfigError(`${name} is ${JSON.stringify(String(given[name])).slice(0, 80)}, but it takes ${takes(property)} (${String(property.description)})`)
  }
  if (config.PUBLIC_URL !== undefined) checkUrl('PUBLIC_URL', config.PUBLIC_URL, ['http:', 'https:'])
  for (const origin of corsOrigins(config)) {
    if (checkUrl('CORS_ORIGINS', origin, ['http:', 'https:']).origin !== origin) {
      throw new ConfigError(`CORS_ORIGINS holds ${JSON.stringify(origin)}, but it takes origins such as https://dash.example, without a path`)
    }
  }
  for (const name of ['NATS_CREDS', 'NATS_NKEY_SEED_FILE', 'NATS_CA', 'TLS_CERT', 'TLS_KEY', 'TLS_CLIENT_CA'] as const) if (config[name] !== undefined) checkFile(name, config[name])
  for (const name of ['AUTH_JWKS', 'OPERATOR_JWKS'] as const) if (config[name] !== undefined) checkKeys(name, config[name])
  for (const [name, needs] of [['TLS_CERT', 'TLS_KEY'], ['TLS_KEY', 'TLS_CERT'], ['TLS_CLIENT_CA', 'TLS_CERT']] as const) {
    if (config[name] !== undefined && config[needs] === undefined) {
      throw new ConfigError(`${name} is set, but ${needs} is not: TLS needs both TLS_CERT and TLS_KEY, two PEM files`)
    }
  }
  for (const server of natsServers(config)) {
    if (!/^((nats|tls):\/\/)?[^\s/@]+$/.test(server)) {
      throw new ConfigError('NATS_URL holds an address that is none: it takes nats://host:port or tls://host:port, several separated by commas, and no password')
    }
  }
  return config
}

/** The variables that `serve` cannot do without. */
export function requireVariables (config: Environment, names: Array<keyof Environment>): void {
  for (const name of names) {
    if (config[name] === undefined) {
      const { description } = EnvironmentSchema.properties[name] as { description?: string }
      throw new ConfigError(`${name} is not set, but it is needed: ${description}`)
    }
  }
}

export const corsOrigins = (config: Pick<Environment, 'CORS_ORIGINS'>): string[] => config.CORS_ORIGINS.split(/[\s,]+/).filter(Boolean)
export const natsServers = (config: Pick<Environment, 'NATS_URL'>): string[] => (config.NATS_URL ?? '').split(',').map((x) => x.trim()).filter(Boolean)

function checkUrl (name: string, text: string, protocols: string[]): URL {
  let url: URL | undefined
  try { url = new URL(text) } catch { /* said below */ }
  if (!url || !protocols.includes(url.protocol)) {
    throw new ConfigError(`${name} is ${JSON.stringify(text).slice(0, 80)}, but it takes a URL that starts with ${protocols.map((p) => `${p}//`).join(' or ')}`)
  }
  return url
}

function checkFile (name: string, path: string): void {
  try {
    readFileSync(path)
  } catch (error) {
    throw new ConfigError(`${name} is ${JSON.stringify(path)}, but that file cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`)
  }
}

/** A JWKS comes from a file, over https, or over http from this machine itself (DESIGN section 8). */
function checkKeys (name: string, text: string): void {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return checkFile(name, text)
  const url = checkUrl(name, text, ['https:', 'http:'])
  if (url.protocol === 'http:' && !['localhost', '127.0.0.1', '[::1]'].includes(url.hostname)) {
    throw new ConfigError(`${name} is ${JSON.stringify(text).slice(0, 80)}, but it takes https, or http on a loopback host`)
  }
}
