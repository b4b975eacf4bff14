import { spawn } from 'node:child_process'
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { findNatsServer } from '../src/dev/nats-binary.js'

const scripts = join(import.meta.dirname, '..', 'scripts')
const lockfile = JSON.stringify({ lockfileVersion: 3, packages: { '': {}, 'node_modules/a': { version: '1.0.0' } } })

/** Programs in place of the real ones: each notes that it ran, and with what. */
const note = 'require("node:fs").appendFileSync(process.env.CALLS, process.argv.slice(1).map((x) => require("node:path").basename(x)).join(" ") + "\\n");'
const fakeCompiler = `${note}
const fs = require('node:fs')
fs.mkdirSync('dist/src', { recursive: true })
fs.writeFileSync('dist/src/cli.js', 'console.log(JSON.stringify(process.argv.slice(1))); process.exitCode = 7')
if (process.env.COMPILER_FAILS) { console.log('src/cli.ts(1,1): error'); process.exit(2) }`
const fakeNpm = `#!${process.execPath}
${note}
const fs = require('node:fs')
fs.mkdirSync('node_modules', { recursive: true })
// Long enough for a second run to come upon it.
const end = Date.now() + Number(process.env.NPM_MS ?? 0)
while (Date.now() < end);
if (process.env.NPM_FAILS) process.exit(1)
fs.copyFileSync('package-lock.json', 'node_modules/.package-lock.json')
console.log('added 1 package')`

/** A clone as it is after a first setup, with stand-ins for npm and the compiler, and no nats-server, apt-get or brew. */
function clone (t: Test) {
  const dir = t.testdir({
    scripts: {},
    src: { 'cli.ts': '' },
    routes: {},
    bin: { npm: fakeNpm, 'nats-server': '#!/bin/sh\n' },
    empty: {},
    node_modules: { '.package-lock.json': lockfile, typescript: { bin: { tsc: fakeCompiler } } },
    'package-lock.json': lockfile,
    'package.json': '{"type":"module"}',
    'tsconfig.json': '{}',
    calls: ''
  })
  for (const file of ['setup.mjs', 'run.mjs']) copyFileSync(join(scripts, file), join(dir, 'scripts', file))
  for (const program of ['npm', 'nats-server']) chmodSync(join(dir, 'bin', program), 0o755)
  // The compiler's stand-in is CommonJS although the clone's package is not.
  writeFileSync(join(dir, 'node_modules', 'typescript', 'package.json'), '{"type":"commonjs"}')
  writeFileSync(join(dir, 'bin', 'package.json'), '{"type":"commonjs"}')
  const env = { PATH: join(dir, 'bin'), CALLS: join(dir, 'calls'), MESH_CACHE_DIR: join(dir, 'empty'), HOME: dir }
  return {
    dir,
    calls: () => readFileSync(join(dir, 'calls'), 'utf8').split('\n').filter(Boolean),
    later: (file: string) => { const soon = new Date(Date.now() + 2000); utimesSync(join(dir, file), soon, soon) },
    run: (args: string[], more: NodeJS.ProcessEnv = {}) => run(dir, args, { ...env, ...more })
  }
}

async function run (cwd: string, args: string[], env: NodeJS.ProcessEnv) {
  const began = performance.now()
  const child = spawn(process.execPath, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  let err = ''
  child.stdout.on('data', (bytes) => { out += bytes })
  child.stderr.on('data', (bytes) => { err += bytes })
  const code = await new Promise((resolve) => child.on('close', resolve))
  return { code, out, err, lines: err.split('\n').filter(Boolean), ms: performance.now() - began }
}

t.test('with nothing to do it is quick, says nothing and changes nothing', async (t) => {
  const c = clone(t)
  await c.run(['scripts/setup.mjs', '--build'])
  const before = c.calls()
  const again = await c.run(['scripts/setup.mjs', '--build'])
  t.match(again, { code: 0, out: '', err: '' })
  t.same(c.calls(), before, 'neither npm nor the compiler ran again')
  t.ok(again.ms < 3000, `well within bounds: ${Math.round(again.ms)} ms`)
})

t.test('packages are installed where none are, or where the lockfile asks for others, with stdout left clean', async (t) => {
  const c = clone(t)
  t.match(await c.run(['scripts/setup.mjs']), { code: 0 })
  t.same(c.calls(), [], 'an install by hand that agrees with the lockfile counts')

  rmSync(join(c.dir, 'node_modules', '.package-lock.json'))
  const first = await c.run(['scripts/setup.mjs'])
  t.match(first, { code: 0, out: '' })
  t.match(first.err, /installing packages/)
  t.match(c.calls(), [/^npm ci /])

  writeFileSync(join(c.dir, 'package-lock.json'), lockfile.replace('1.0.0', '1.0.1'))
  t.match(await c.run(['scripts/setup.mjs']), { code: 0, out: '' })
  t.equal(c.calls().length, 2)
  t.match(await c.run(['scripts/setup.mjs']), { code: 0, err: '' })
  t.equal(c.calls().length, 2, 'and then no more')

  writeFileSync(join(c.dir, 'package-lock.json'), lockfile.replace('1.0.0', '1.0.2'))
  const failed = await c.run(['scripts/setup.mjs'], { NPM_FAILS: '1' })
  t.equal(failed.code, 1)
  t.match(failed.lines.at(-1), /^setup: npm ci failed/)
  t.notOk(existsSync(join(c.dir, '.cache', 'setup.lock')), 'the lock is given back')
})

t.test('the build runs when a source is newer, was removed, or its output is missing; and again after one that failed', async (t) => {
  const c = clone(t)
  const builds = () => c.calls().filter((line) => line.startsWith('tsc')).length
  const build = async (env = {}) => { const result = await c.run(['scripts/setup.mjs', '--build'], env); return { ...result, builds: builds() } }
  t.match(await build(), { code: 0, out: '', builds: 1 })
  c.later('src/cli.ts')
  t.match(await build(), { builds: 2 }, 'a newer source')
  c.later('tsconfig.json')
  utimesSync(join(c.dir, 'src/cli.ts'), new Date(0), new Date(0))
  t.match(await build(), { builds: 3 }, 'newer options')
  utimesSync(join(c.dir, 'tsconfig.json'), new Date(0), new Date(0))
  rmSync(join(c.dir, 'dist/src/cli.js'))
  t.match(await build(), { builds: 4 }, 'an output that is missing')
  mkdirSync(join(c.dir, 'dist/routes'), { recursive: true })
  writeFileSync(join(c.dir, 'dist/routes/gone.js'), '')
  c.later('routes')
  t.match(await build({ COMPILER_FAILS: '1' }), { code: 1, out: '', builds: 5 })
  utimesSync(join(c.dir, 'routes'), new Date(0), new Date(0))
  t.match(await build(), { code: 0, builds: 6 }, 'a build that failed counts as none')
  t.notOk(existsSync(join(c.dir, 'dist/routes/gone.js')), 'the output of a source that was removed goes')
  t.match(await build(), { code: 0, builds: 6 })
})

t.test('no nats-server: one clear line and exit code 1', async (t) => {
  const c = clone(t)
  const wrong = await c.run(['scripts/setup.mjs'], { NATS_SERVER_BIN: '/nowhere/nats-server' })
  t.match(wrong, { code: 1, out: '' })
  t.match(wrong.lines, [/^setup: NATS_SERVER_BIN is "\/nowhere\/nats-server", but no program is there/])
  t.equal(wrong.lines.length, 1)

  const none = await c.run(['scripts/setup.mjs'], { PATH: join(c.dir, 'empty') })
  t.match(none, { code: 1, out: '' })
  t.match(none.lines, [/^setup: nats-server was not found: install nats-server .*NATS_SERVER_BIN/])
  t.equal(none.lines.length, 1)

  const copy = join(c.dir, 'empty', 'nats', 'usr', 'sbin', 'nats-server')
  mkdirSync(dirname(copy), { recursive: true })
  copyFileSync(join(c.dir, 'bin', 'nats-server'), copy)
  t.match(await c.run(['scripts/setup.mjs'], { PATH: join(c.dir, 'empty') }), { code: 0, out: '', err: '' }, 'the private copy is found')
})

t.test('src looks for nats-server in the same places', async (t) => {
  const { dir } = clone(t)
  const bin = join(dir, 'bin', 'nats-server')
  t.equal(findNatsServer({ NATS_SERVER_BIN: bin }), bin)
  t.equal(findNatsServer({ NATS_SERVER_BIN: '/nowhere/nats-server', PATH: join(dir, 'bin') }), undefined, 'a wrong name has no fallback')
  t.equal(findNatsServer({ PATH: `/nowhere:${join(dir, 'bin')}`, MESH_CACHE_DIR: join(dir, 'empty') }), bin)
  t.equal(findNatsServer({ PATH: '', MESH_CACHE_DIR: join(dir, 'empty') }), undefined)
  const copy = join(dir, 'empty', 'nats', 'usr', 'sbin', 'nats-server')
  mkdirSync(dirname(copy), { recursive: true })
  copyFileSync(bin, copy)
  t.equal(findNatsServer({ PATH: '/nowhere', MESH_CACHE_DIR: join(dir, 'empty') }), copy)
})

t.test('several at once do the work once, and the lock of one that was killed is taken over', async (t) => {
  const c = clone(t)
  rmSync(join(c.dir, 'node_modules', '.package-lock.json'))
  // Nobody has this process id: it ended before the runs begin.
  const ended = spawn(process.execPath, ['-e', ''])
  await new Promise((resolve) => ended.on('close', resolve))
  mkdirSync(join(c.dir, '.cache', 'setup.lock'), { recursive: true })
  writeFileSync(join(c.dir, '.cache', 'setup.lock', 'pid'), String(ended.pid))
  const results = await Promise.all([1, 2, 3].map(() => c.run(['scripts/setup.mjs'], { NPM_MS: '500' })))
  t.same(results.map(({ code }) => code), [0, 0, 0])
  t.equal(c.calls().length, 1)
  t.notOk(existsSync(join(c.dir, '.cache', 'setup.lock')))
})

t.test('run.mjs makes ready, then is the command: its arguments, its exit code, its stdout alone', async (t) => {
  const c = clone(t)
  const result = await c.run(['scripts/run.mjs', 'token', '--module', 'billing'], { PATH: join(c.dir, 'empty') })
  t.equal(result.code, 7)
  t.same(JSON.parse(result.out), [join(c.dir, 'dist/src/cli.js'), 'token', '--module', 'billing'])
  t.match(result.lines, [/compiling/])
  t.match(await c.run(['scripts/run.mjs', 'dev'], { PATH: join(c.dir, 'empty') }), { code: 1, out: '' }, 'dev alone needs a nats-server')
})

t.test('the count of a run: leaf assertions, and whatever ended a file without saying so', async (t) => {
  const { dir } = clone(t)
  const count = async (status: number, ...lines: string[]) => {
    writeFileSync(join(dir, 'tap'), lines.join('\n'))
    return (await run(dir, [join(scripts, '..', '.ci', 'count-tap.mjs'), join(dir, 'tap'), String(status)], {})).out.trim()
  }
  const file = (closing: string, ...inside: string[]) => ['# Subtest: test/a.test.ts', ...inside.map((line) => `    ${line}`), `${closing} 1 - test/a.test.ts # time=1ms`]
  t.equal(await count(0, ...file('ok', '# Subtest: x', '    ok 1 - a', '    ok 2 - b', 'ok 1 - x', 'ok 2 - c')), '3 0')
  t.equal(await count(1, ...file('not ok', '# Subtest: x', '    ok 1 - a', '    not ok 2 - b', 'not ok 1 - x')), '1 1', 'one failure is one, however deep')
  t.equal(await count(1, ...file('not ok', 'ok 1 - a')), '1 1', 'a crash, a signal or an exit code')
  t.equal(await count(1, ...file('not ok'), 'not ok 2 - timeout!'), '0 2')
  t.equal(await count(1, ...file('ok', 'ok 1 - a')), '1 1', 'an exit code that nothing explains')
  t.equal(await count(0, ...file('ok', 'ok 1 - a # SKIP', 'not ok 2 - b # TODO')), '0 1', 'a run that asserted nothing')
  t.equal(await count(1), '0 1', 'a run that never began')
})
