// What the dependencies bring: no known advisory (as far as the registry tells), nothing that its authors gave up, nothing that is not used.
// Needs no network but the registry's, and says so where the registry does not tell advisories.
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
const wrong = []

// Advisories. Not every registry has the endpoint: then this is not known, which is another thing than none.
const { stdout } = spawnSync('npm', ['audit', '--json', '--audit=true'], { cwd: root, encoding: 'utf8', timeout: 60_000 })
let report
try { report = JSON.parse(stdout) } catch { /* said below */ }
if (report?.vulnerabilities) {
  for (const [name, { severity, range }] of Object.entries(report.vulnerabilities)) wrong.push(`${name} ${range} has a known advisory (${severity}): npm audit tells more`)
  console.log(`advisories: asked about ${Object.keys(lock.packages).length - 1} packages`)
} else console.log('advisories: not known, the registry in use does not tell them (npm audit failed); ask where one does')

for (const [path, { deprecated, dev }] of Object.entries(lock.packages)) {
  if (deprecated && !dev) wrong.push(`${path.slice('node_modules/'.length)} was given up by its authors: ${deprecated}`)
}

// A production dependency that no file of the product imports is one without need.
const files = (folder) => readdirSync(join(root, folder), { recursive: true }).filter((name) => name.endsWith('.ts')).map((name) => join(root, folder, name))
const text = [...files('src'), ...files('routes')].map((file) => readFileSync(file, 'utf8')).join('\n')
const imported = new Set([...text.matchAll(/(?:from|import) '((?:@[^/']+\/)?[^/']+)[^']*'/g)].map(([, name]) => name))
for (const name of Object.keys(manifest.dependencies)) if (!imported.has(name)) wrong.push(`${name} is a dependency, but nothing in src or routes imports it`)
const builtin = (name) => name.startsWith('node:') || name.startsWith('.')
for (const name of imported) {
  if (builtin(name) || manifest.dependencies[name]) continue
  // Types alone vanish when it is built.
  const onlyTypes = [...text.matchAll(new RegExp(`import (type )?[^\\n]* from '${name}['/]`, 'g'))].every(([, type]) => type)
  if (!onlyTypes) wrong.push(`${name} is imported, but is no dependency`)
}

for (const line of wrong) console.error(line)
console.log(`${Object.keys(manifest.dependencies).length} dependencies, all used; ${wrong.length} findings`)
process.exitCode = wrong.length ? 1 : 0
