/**
 * The included file with the user list, and the nats-server that reads it: checked before it counts, put in place in one
 * step, reloaded, and believed only when the server says so (DESIGN section 5).
 */
import { execFile } from 'node:child_process'
import { open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { printable } from '../core/names.js'
import { fileVersion } from '../file-version.js'
import type { BrokerEnvironment } from './broker-config.js'
import { confString, exchangeFixedUsers, renderUserList } from './user-list.js'

const run = promisify(execFile)
const includeLine = /((?:^|[{;,])[ \t]*include[ \t:=]*)(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'#;]+))/gm

/** What `/varz` says of a server's run and of the configuration it has. */
interface Loaded { start: string, at: string }

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? 'error'

export class UsersFile {
  readonly #users: string
  readonly #main: string
  /** The text that the server is known to run with. */
  #loaded: string | undefined
  /** The version of the fixed users' file that was read last. */
  #fixedVersion: string | undefined
  /** Its version at the last look. */
  #versionSeen: string | undefined

  constructor (private readonly config: BrokerEnvironment) {
    this.#users = resolve(config.BROKER_USERS)
    this.#main = resolve(config.BROKER_CONFIG)
  }

  /** The users that are not of modules, as text. */
  async fixed (): Promise<string> {
    // That from before the reading: a write in between is then seen by the next look.
    this.#fixedVersion = fileVersion(this.config.BROKER_FIXED_USERS)
    try {
      return await readFile(this.config.BROKER_FIXED_USERS, 'utf8')
    } catch (error) {
      throw new Error(`the fixed users in ${this.config.BROKER_FIXED_USERS} cannot be read (${codeOf(error)})`)
    }
  }

  /**
   * Looks at the file of the fixed users: whether it was written since it was read last (or not read yet), and not since the look
   * before this one. One that is being written would take all users away that are not in it yet.
   */
  fixedMoved (): boolean {
    const version = fileVersion(this.config.BROKER_FIXED_USERS)
    const isStill = version === this.#versionSeen
    this.#versionSeen = version
    return isStill && version !== this.#fixedVersion
  }

  /** A server cannot start without the file it includes: where there is none, the fixed users alone are written. */
  async writeFirst (): Promise<void> {
    const { text } = renderUserList(await this.fixed(), [])
    await writeFile(this.#users, text, { mode: 0o640, flag: 'wx' }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw new Error(`the user list ${this.#users} cannot be written (${codeOf(error)})`)
    })
  }

  /**
   * Resolves once the server runs with this text; rejects with the reason why it does not, the file then being what it was
   * or, where the server itself did not take it, tried again by the next call.
   */
  async apply (text: string): Promise<void> {
    const stands = await readFile(this.#users, 'utf8').catch(() => undefined)
    if (stands === text && (this.#loaded === text || await this.#isLoaded())) {
      this.#loaded = text
      return
    }
    this.#loaded = undefined
    if (stands !== text) await this.#replace(text)
    await this.#reload()
    this.#loaded = text
  }

  /**
   * The same for the fixed users as they are now beside the modules' users that stand, whoever rendered these and when. Rejects
   * where a list stands in which the two cannot be told apart. Says whether the list is another now.
   */
  async applyFixed (): Promise<boolean> {
    const fixed = await this.fixed()
    const stands = await readFile(this.#users, 'utf8').catch((error) => {
      throw new Error(`the user list ${this.#users} cannot be read (${codeOf(error)})`)
    })
    const text = exchangeFixedUsers(stands, fixed)
    if (text === undefined) throw new Error(`the user list ${this.#users} was not written by this agent: the fixed users count with the next list of the broker module`)
    await this.apply(text)
    return text !== stands
  }

  async #replace (text: string): Promise<void> {
    const temporary = join(dirname(this.#users), `.${basename(this.#users)}.new`)
    try {
      const mode = await stat(this.#users).then(({ mode }) => mode & 0o777, () => 0o640)
      // One that an agent left when it was killed may have other rights.
      await rm(temporary, { force: true })
      const file = await open(temporary, 'wx', mode)
      try {
        await file.writeFile(text)
        await file.sync()
      } finally {
        await file.close()
      }
      await this.#check(temporary)
      await rename(temporary, this.#users)
    } finally {
      await rm(temporary, { force: true })
    }
  }

  /** Has the program itself read the whole configuration with the new list in the old one's place. */
  async #check (list: string): Promise<void> {
    const folder = dirname(this.#main)
    const main = await readFile(this.#main, 'utf8').catch((error) => {
      throw new Error(`the main configuration ${this.#main} cannot be read (${codeOf(error)})`)
    })
    let includes = false
    const checked = main.replace(includeLine, (line, before: string, a?: string, b?: string, c?: string) => {
      if (join(folder, a ?? b ?? c ?? '') !== this.#users) return line
      includes = true
      return before + confString(relative(folder, list))
    })
    if (!includes) throw new Error(`the main configuration ${this.#main} does not include the user list ${this.#users}`)
    const temporary = join(folder, `.${basename(this.#main)}.check`)
    try {
      await rm(temporary, { force: true })
      // The main configuration may hold passwords.
      await writeFile(temporary, checked, { mode: 0o600, flag: 'wx' })
      await run(this.config.BROKER_NATS_SERVER, ['-t', '-c', temporary], { timeout: limits.checkConfigMs })
    } catch (error) {
      const { stderr, code } = error as { stderr?: string, code?: unknown }
      if (code === 'ENOENT') throw new Error(`${this.config.BROKER_NATS_SERVER} is not there to check the user list`)
      throw new Error(`nats-server refuses the user list: ${printable((stderr || messageOf(error)).trim().replace(/^nats-server: /, ''), 300)}`)
    } finally {
      await rm(temporary, { force: true })
    }
  }

  /** Whether the server read its configuration after the file was put in place; a second's doubt costs a reload too many. */
  async #isLoaded (): Promise<boolean> {
    const [{ ctimeMs }, { at }] = await Promise.all([stat(this.#users), this.#varz()])
    return Date.parse(at) > ctimeMs + 1000
  }

  async #reload (): Promise<void> {
    const end = Date.now() + limits.reloadMs
    let before = await this.#varz()
    await this.#hangUp()
    while (Date.now() < end) {
      await pause(limits.reloadPollMs)
      const now = await this.#varz().catch(() => before)
      if (now.start !== before.start) {
        // Another run of the server: it may have read the old file, or have started before it could hear the signal.
        before = now
        await this.#hangUp()
      } else if (now.at !== before.at) return
    }
    throw new Error(`the server did not take the new user list within ${limits.reloadMs} ms: its log says why`)
  }

  async #hangUp (): Promise<void> {
    const file = this.config.BROKER_PID_FILE
    const pid = Number((await readFile(file, 'utf8').catch((error) => {
      throw new Error(`the server's pid file ${file} cannot be read (${codeOf(error)})`)
    })).trim())
    // A pid of 0 or below would signal a whole group.
    if (!Number.isSafeInteger(pid) || pid < 2) throw new Error(`the server's pid file ${file} holds no pid`)
    try {
      process.kill(pid, 'SIGHUP')
    } catch (error) {
      throw new Error(`the server with the pid of ${file} cannot be told to reload (${codeOf(error)})`)
    }
  }

  async #varz (): Promise<Loaded> {
    const url = new URL('/varz', this.config.BROKER_MONITOR_URL)
    try {
      const answer = await fetch(url, { signal: AbortSignal.timeout(limits.reloadMs) })
      const { start, config_load_time: at } = await answer.json() as { start?: string, config_load_time?: string }
      if (typeof start === 'string' && typeof at === 'string') return { start, at }
    } catch (error) {
      throw new Error(`the server's monitoring at ${url.origin} does not answer (${codeOf((error as Error).cause ?? error)})`)
    }
    throw new Error(`what answers at ${url.origin} is no nats-server's monitoring`)
  }
}
