// Two rules about the lockfile: no production dependency stands in it in two versions (each is loaded, audited and patched
// twice), and it holds no download addresses (whoever installs decides where packages come from).
import { readFileSync } from 'node:fs'

/** What may stand twice, and why. */
const tolerated = {
  'fast-uri': "ajv 8 takes version 3, fastify's own validator and serializer take version 4"
}

const text = readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8')
const versions = new Map()
for (const [path, { version, dev, devOptional }] of Object.entries(JSON.parse(text).packages)) {
  if (path === '' || dev || devOptional) continue
  const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
  versions.set(name, (versions.get(name) ?? new Set()).add(version))
}

const wrong = []
for (const [name, set] of versions) {
  if (set.size > 1 && !tolerated[name]) wrong.push(`${name} stands in the lockfile in ${set.size} versions: ${[...set].join(', ')}`)
}
for (const name of Object.keys(tolerated)) {
  if (!(versions.get(name)?.size > 1)) wrong.push(`${name} no longer stands in two versions: take it off the list in .ci/check-packages.mjs`)
}
const addresses = text.match(/"resolved":/g)?.length ?? 0
if (addresses) wrong.push(`package-lock.json holds ${addresses} download addresses: run "npm install" with this project's .npmrc`)

for (const line of wrong) console.error(line)
process.exitCode = wrong.length ? 1 : 0
