// Makes a fresh clone ready: packages, a nats-server, the build. Runs before any package is installed, so it uses Node's
// own modules alone. All it says goes to stderr: what a command prints on stdout (a token, say) stays by itself.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  accessSync, constants, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, renameSync, rmSync, statSync,
  utimesSync, writeFileSync
} from 'node:fs'
import { basename, delimiter, join, relative, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const at = (...parts) => join(root, ...parts)
const privateCache = at('.cache')
const cache = process.env.MESH_CACHE_DIR ? resolve(process.env.MESH_CACHE_DIR) : privateCache

/** What went wrong and what to do, in one line; shown without a stack. */
class SetupError extends Error {}

const say = (text) => process.stderr.write(`setup: ${text}\n`)

/** Runs a program to its end with its output on stderr; whether it succeeded. */
function run (program, args, options = {}) {
  const { status } = spawnSync(program, args, { cwd: root, stdio: ['ignore', 2, 2], ...options })
  return status === 0
}

// --- packages -----------------------------------------------------------------------------------------------------------

const stamp = at('node_modules', '.setup-lock-hash')
const lockHash = () => createHash('sha256').update(readFileSync(at('package-lock.json'))).digest('hex')
const read = (file) => { try { return readFileSync(file, 'utf8') } catch { return undefined } }

/** Whether node_modules holds what the lockfile asks for, as npm itself noted it down at the end of an install. */
function packagesAgree () {
  const installed = read(at('node_modules', '.package-lock.json'))
  if (installed === undefined) return false
  const has = JSON.parse(installed).packages ?? {}
  const wants = JSON.parse(readFileSync(at('package-lock.json'), 'utf8')).packages ?? {}
  return Object.entries(wants).every(([path, { version, optional, link }]) =>
    path === '' || optional || link || has[path]?.version === version)
}

function packagesNeeded () {
  if (!existsSync(at('package-lock.json'))) return false
  if (existsSync(at('node_modules', '.package-lock.json')) && read(stamp) === lockHash()) return false
  // No stamp of ours: somebody ran npm by hand, and that counts where the result is the same.
  if (!packagesAgree()) return true
  try { writeFileSync(stamp, lockHash()) } catch { /* a tree that only may be read: compared again next time */ }
  return false
}

function installPackages () {
  say('installing packages (npm ci)')
  // A production environment would leave the compiler out.
  const args = ['ci', '--include=dev', '--no-audit', '--no-fund', '--no-update-notifier', '--loglevel=error', '--progress=false']
  const npm = process.env.npm_execpath
  const done = npm && basename(npm).startsWith('npm-cli')
    ? run(process.execPath, [npm, ...args])
    : run('npm', args, { shell: process.platform === 'win32' })
  if (!done) throw new SetupError('npm ci failed: its messages stand above; check the network, then run the command again')
  writeFileSync(stamp, lockHash())
}

// --- nats-server --------------------------------------------------------------------------------------------------------

function executable (file) {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch { return false }
}

function onPath (name) {
  const names = process.platform === 'win32' ? [`${name}.exe`] : [name]
  return (process.env.PATH ?? '').split(delimiter).filter(Boolean).flatMap((folder) => names.map((n) => join(folder, n))).find(executable)
}

/** The nats-server to use, if there is one. src/dev/nats-binary.ts looks in the same places, in the same order. */
function findNatsServer () {
  const named = process.env.NATS_SERVER_BIN
  if (named) {
    if (!executable(named)) throw new SetupError(`NATS_SERVER_BIN is ${JSON.stringify(named)}, but no program is there: set it to a nats-server, or leave it out`)
    return named
  }
  const copy = join(cache, 'nats', 'usr', 'sbin', 'nats-server')
  return onPath('nats-server') ?? (executable(copy) ? copy : undefined)
}

const byHand = 'install nats-server 2.9 or newer (https://github.com/nats-io/nats-server/releases) on the PATH, or set NATS_SERVER_BIN to it'

/**
 * A copy of the distribution's package, unpacked into the cache. apt's own signatures vouch for it; its lists and archives
 * stay in the cache as well, so it needs no root and changes nothing on the system.
 */
function unpackFromApt () {
  say('fetching nats-server with apt-get into a private folder')
  const apt = join(cache, 'apt')
  for (const folder of ['lists/partial', 'cache/archives/partial', 'package']) mkdirSync(join(apt, folder), { recursive: true })
  const config = join(apt, 'apt.conf')
  // The cleared hooks are the system's (a container image's may empty its cache); the sandbox user could not reach this folder.
  writeFileSync(config, [
    '#clear APT::Update::Pre-Invoke;', '#clear APT::Update::Post-Invoke;', '#clear APT::Update::Post-Invoke-Success;',
    `Dir::State::Lists "${join(apt, 'lists')}";`, `Dir::Cache "${join(apt, 'cache')}";`,
    'APT::Sandbox::User "root";', 'Acquire::Languages "none";', 'Acquire::Retries "2";', ''
  ].join('\n'))
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const target = mkdtempSync(join(cache, 'nats.'))
  try {
    const folder = join(apt, 'package')
    for (const old of readdirSync(folder)) rmSync(join(folder, old))
    if (!run('apt-get', ['-qq', '-c', config, 'update'], { env })) return false
    if (!run('apt-get', ['-qq', '-c', config, 'download', 'nats-server'], { env, cwd: folder })) return false
    const [file] = readdirSync(folder).filter((name) => name.endsWith('.deb'))
    if (file === undefined || !run('dpkg', ['-x', join(folder, file), target])) return false
    // Whole or not at all: a copy that was cut short must not be found later.
    rmSync(join(cache, 'nats'), { recursive: true, force: true })
    renameSync(target, join(cache, 'nats'))
    return true
  } finally {
    rmSync(target, { recursive: true, force: true })
    rmSync(apt, { recursive: true, force: true })
  }
}

function installNatsServer () {
  mkdirSync(cache, { recursive: true })
  if (onPath('apt-get') && onPath('dpkg')) {
    if (unpackFromApt()) return
    throw new SetupError(`apt-get could not fetch nats-server: check the network and run the command again, or ${byHand}`)
  }
  if (onPath('brew')) {
    say('installing nats-server with brew')
    if (run('brew', ['install', 'nats-server'])) return
    throw new SetupError(`brew could not install nats-server: ${byHand}`)
  }
  throw new SetupError(`nats-server was not found: ${byHand}`)
}

// --- the build ----------------------------------------------------------------------------------------------------------

// Not the compiler's own .tsbuildinfo: a run without emit, or one with errors, renews that as well.
const built = at('dist', '.built')
const sourceFolders = ['src', 'routes']

/** Every file and folder below; a folder's own time tells of a file that was removed. */
function * below (folder) {
  if (!existsSync(folder)) return
  yield folder
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) yield * below(join(folder, entry.name))
    else yield join(folder, entry.name)
  }
}
const outputOf = (source) => at('dist', relative(root, source).replace(/\.ts$/, '.js'))
const sources = () => sourceFolders.flatMap((folder) => [...below(at(folder))]).filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts'))

function buildNeeded () {
  if (!existsSync(at('tsconfig.json')) || !existsSync(at('src'))) return false
  const since = statSync(built, { throwIfNoEntry: false })?.mtimeMs
  if (since === undefined) return true
  for (const folder of sourceFolders) for (const file of below(at(folder))) if (statSync(file).mtimeMs > since) return true
  return statSync(at('tsconfig.json')).mtimeMs > since || sources().some((file) => !existsSync(outputOf(file)))
}

function build () {
  say('compiling (tsc)')
  const wanted = new Set(sources().map(outputOf))
  // The compiler trusts its notes and does not make again what was removed behind its back.
  if ([...wanted].some((file) => !existsSync(file))) rmSync(at('dist', '.tsbuildinfo'), { force: true })
  // What is changed while the compiler runs must count as newer.
  const began = new Date()
  if (!run(process.execPath, [at('node_modules', 'typescript', 'bin', 'tsc'), '-p', '.'])) {
    rmSync(built, { force: true })
    throw new SetupError('the TypeScript compiler found errors: they stand above')
  }
  // A route whose source is gone would still be loaded.
  for (const folder of sourceFolders) {
    for (const file of [...below(at('dist', folder))].filter((f) => /\.js(\.map)?$/.test(f))) {
      if (!wanted.has(file.replace(/\.map$/, ''))) rmSync(file)
    }
  }
  writeFileSync(built, '')
  utimesSync(built, began, began)
}

// --- one at a time ------------------------------------------------------------------------------------------------------

const lock = join(privateCache, 'setup.lock')
const lockPatienceMs = 10 * 60_000

function alive (pid) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) { return error.code === 'EPERM' }
}

/** Waits for the lock, a folder that holds its owner's process id; what it returns gives the lock back. */
async function takeLock () {
  mkdirSync(privateCache, { recursive: true })
  const mine = mkdtempSync(`${lock}.`)
  writeFileSync(join(mine, 'pid'), String(process.pid))
  const remove = []
  const began = Date.now()
  try {
    for (let waits = 0; ; waits++) {
      try {
        // A folder that is not empty cannot be replaced: so the lock is taken, with its owner's id in it, in one step.
        renameSync(mine, lock)
        return () => { for (const folder of [lock, ...remove]) rmSync(folder, { recursive: true, force: true }) }
      } catch (error) {
        if (!['ENOTEMPTY', 'EEXIST', 'EPERM'].includes(error.code)) throw error
      }
      const owner = Number(read(join(lock, 'pid')))
      if (owner > 0 && (owner === process.pid || !alive(owner))) {
        // Of several who find a dead owner one moves the folder away; it stays where it is until that one is through, so that
        // a late one cannot move away the new owner's in its stead.
        const dead = `${lock}.dead-${owner}`
        try { renameSync(lock, dead); remove.push(dead) } catch { /* somebody else did */ }
        if (remove.length) continue
      }
      if (waits === 0) say('waiting for another setup in this folder')
      if (Date.now() - began > lockPatienceMs) throw new SetupError(`another setup holds ${lock} for ten minutes: end it, or remove that folder`)
      await pause(100)
    }
  } catch (error) {
    rmSync(mine, { recursive: true, force: true })
    throw error
  }
}

/**
 * Does what is missing, and nothing where nothing is: packages, then `nats` (a nats-server), then `build`. Rejects with an
 * error whose message is one line for the user.
 */
export async function setUp ({ nats = true, build: wantBuild = false } = {}) {
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 12)) throw new SetupError(`this is Node.js ${process.versions.node}, but it takes 20.12 or newer`)
  const steps = [
    [packagesNeeded, installPackages],
    ...(nats ? [[() => findNatsServer() === undefined, installNatsServer]] : []),
    ...(wantBuild ? [[buildNeeded, build]] : [])
  ]
  if (!steps.some(([needed]) => needed())) return
  const release = await takeLock()
  try {
    // Looked at again: the one that was waited for may have done it.
    for (const [needed, act] of steps) if (needed()) act()
  } finally {
    release()
  }
}

/** Ends the process with the error's line; anything that is not meant for the user keeps its stack. */
export function fail (error) {
  say(error instanceof SetupError ? error.message : error?.stack ?? error)
  process.exit(1)
}

if (process.argv[1] && pathToFileURL(realpathSync(process.argv[1])).href === import.meta.url) {
  await setUp({ build: process.argv.includes('--build') }).catch(fail)
}
