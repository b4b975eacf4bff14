// `node count-tap.mjs FILE STATUS`: prints the passed and the failed assertions in what tap wrote, as two numbers. STATUS is
// tap's exit code: one that is not 0 is at least one failure, whatever was written (tap may have died before it began).
import { readFileSync } from 'node:fs'

const [file, status] = process.argv.slice(2)
let passed = 0
let failed = 0
// By depth: the failures counted when the subtest that is open there began.
const open = new Map()

let text = ''
try { text = readFileSync(file, 'utf8') } catch { /* nothing was written: the exit code counts */ }
for (const line of text.split('\n')) {
  const [, indent, rest] = /^( *)(.*)$/.exec(line)
  const depth = indent.length
  if (rest.startsWith('# Subtest')) { open.set(depth, failed); continue }
  if (rest.startsWith('Bail out!')) failed++
  const point = /^(not )?ok \d+(?! .*# (?:TODO|SKIP))/i.exec(rest)
  if (!point) continue
  const ok = !point[1]
  const before = open.get(depth)
  open.delete(depth)
  if (before === undefined) ok ? passed++ : failed++
  // The closing line of a subtest counts only where nothing inside says why it failed: a crash, a signal, an exit code.
  else if (!ok && failed === before) failed++
}
if (status !== '0' && failed === 0) failed = 1
// A run that asserted nothing proves nothing.
if (passed + failed === 0) failed = 1
console.log(passed, failed)
