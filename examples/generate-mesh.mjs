#!/usr/bin/env node
// A mesh of any size, for trying how many modules, nodes and gateways do:
//
//   node examples/generate-mesh.mjs --modules 200 --nodes 20 > big.yaml
//   mesh-gateway apply big.yaml
//
// The same numbers give the same file. `--build 2` is every module's next build: apply it, and all of them move at once.
import { createHash } from 'node:crypto'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { stringify } from 'yaml'

const numbered = (letter, count) => Array.from({ length: count }, (_, i) => letter + String(i).padStart(String(count - 1).length, '0'))
const hex = (text) => createHash('sha256').update(text).digest('hex')

/**
 * The description, as `apply` takes it. Each module runs on `spread` nodes; every third is bound to what the one before it offers; each may
 * publish its own subjects and hear the next one's. The broker module, `bus`, has its seat on the first node, and asks the agents of `servers`.
 */
export function describeMesh ({ modules = 200, nodes = 20, spread = 3, build = 1, servers = [] } = {}) {
  const nodeNames = numbered('n', nodes)
  const moduleNames = numbered('m', modules)
  const described = { bus: { nodes: [nodeNames[0]], build: { fp: `fp2-${hex('bus 1')}`, commit: hex('bus 1').slice(0, 40), manifest: {} } } }
  for (const [i, name] of moduleNames.entries()) {
    const next = moduleNames[(i + 1) % modules]
    const bound = i % 3 === 2 ? moduleNames[i - 1] : undefined
    const on = new Set(Array.from({ length: Math.min(spread, nodes) }, (_, k) => nodeNames[(i + 7 * k) % nodes]))
    described[name] = {
      nodes: [...on].sort(),
      build: {
        fp: `fp2-${hex(`${name} ${build}`)}`,
        commit: hex(`${name} ${build}`).slice(0, 40),
        manifest: {
          config: { build: { default: build }, port: { default: 8000 + i, schema: { type: 'integer', minimum: 1, maximum: 65535 } } },
          offers: { url: `http://${name}.mesh.local/${build}` },
          ...(bound === undefined ? {} : { bound: { peer: {} } }),
          permissions: { publish: [`${name}.out.>`], subscribe: [`${next}.out.>`] }
        }
      },
      ...(bound === undefined ? {} : { bindings: { peer: { module: bound, offer: 'url' } } })
    }
  }
  return { nodes: Object.fromEntries(nodeNames.map((name) => [name, {}])), seat: { module: 'bus', node: nodeNames[0], servers }, modules: described }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { values } = parseArgs({
    options: { modules: { type: 'string', default: '200' }, nodes: { type: 'string', default: '20' }, build: { type: 'string', default: '1' } }
  })
  const count = (name, most) => {
    const number = Number(values[name])
    if (!Number.isInteger(number) || number < 1 || number > most) {
      process.stderr.write(`--${name} is ${JSON.stringify(values[name])}, but it takes a whole number from 1 to ${most}\n`)
      process.exit(1)
    }
    return number
  }
  process.stdout.write(stringify(describeMesh({ modules: count('modules', 10_000), nodes: count('nodes', 1000), build: count('build', 1_000_000) })))
}
