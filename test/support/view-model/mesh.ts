/** The truth: what the bucket of compositions holds over time, and how far each of two provisioners has followed it. */
import type { Kind, ValueName } from '../../../src/core/names.js'
import type { Answer, Word } from '../../../src/core/ports.js'

/** What stands of a value: its JSON text, or `!` and the reason why it is refused. */
export type Content = string

/** The bucket at one time: each module's composition by its revision; one without contents does not exist. */
interface State {
  epoch: number
  seq: number
  /** The bucket was restored or made anew: whoever follows it starts from all keys. */
  anew: boolean
  modules: Readonly<Record<string, { revision: number, contents?: Readonly<Record<string, Content>> }>>
}

export interface Follower { at: number, life: 'up' | 'mute' | 'gone' }

const kinds: Kind[] = ['config', 'bound']
export const modules = ['billing', 'search']
export const names: ValueName[] = modules.flatMap((module) => [
  { module, kind: 'config' as const, key: 'limit' },
  { module, kind: 'config' as const, key: 'mode' },
  { module, kind: 'bound' as const, key: 'limit' }
])

export const idOf = ({ module, kind, key }: ValueName): string => `${module} ${kind} ${key}`
const absent = '!the module is not on this node'

export class Mesh {
  readonly followers: Follower[] = [{ at: 0, life: 'up' }, { at: 0, life: 'up' }]
  readonly #timeline: State[]

  constructor (readonly names: readonly ValueName[], epoch: number) {
    const contents = Object.fromEntries(names.map((name) => [idOf(name), '0']))
    const first = Object.fromEntries(modules.map((module, at) => [module, { revision: at + 1, contents }]))
    this.#timeline = [{ epoch, seq: modules.length, anew: true, modules: first }]
  }

  /** A write of the module's composition; contents undefined: it is removed. */
  write (module: string, contents: Record<string, Content> | undefined): void {
    const { epoch, seq, modules } = this.#newest
    const before = modules[module]?.contents ?? Object.fromEntries(this.names.map((name) => [idOf(name), '0']))
    const after = { revision: seq + 1, contents: contents && { ...before, ...contents } }
    this.#timeline.push({ epoch, seq: seq + 1, anew: false, modules: { ...modules, [module]: after } })
  }

  /** An earlier state of the same epoch stands again, revisions and all. */
  restore (back: number): void {
    const same = this.#timeline.filter(({ epoch }) => epoch === this.#newest.epoch)
    this.#timeline.push({ ...same[Math.max(0, same.length - 1 - back)] as State, anew: true })
  }

  /** The bucket was made anew, with the contents it had; its revisions begin again. */
  recreate (epochs: number): void {
    const modules = Object.entries(this.#newest.modules).map(([module, { contents }], at) => [module, { revision: at + 1, contents }])
    this.#timeline.push({ epoch: this.#newest.epoch + epochs, seq: modules.length, anew: true, modules: Object.fromEntries(modules) })
  }

  /** A provisioner follows the bucket for some writes and says what moved, each value or (`wide`) all of its kind. */
  apply (which: number, most: number, wide: boolean): Word[] {
    const follower = this.#follower(which)
    const [from, to] = [follower.at, Math.min(follower.at + most, this.#timeline.length - 1)]
    follower.at = to
    if (this.#timeline.slice(from + 1, to + 1).some(({ anew }) => anew)) return this.#everything(to)
    const moved = this.names.filter((name) => this.#content(from, name) !== this.#content(to, name))
    return moved.map(({ module, kind, key }) => ({ module, kind, ...(wide ? {} : { key }), revision: this.#revision(to, module) }))
  }

  /** It comes up, having read the bucket (all of it but the last `behind` writes), and says all that it answers. */
  rise (which: number, behind: number): Word[] {
    const follower = this.#follower(which)
    follower.life = 'up'
    follower.at = Math.max(follower.at, this.#timeline.length - 1 - behind)
    return this.#everything(follower.at)
  }

  answer (which: number, name: ValueName): Answer {
    const { at } = this.#follower(which)
    const content = this.#content(at, name)
    const revision = this.#revision(at, name.module)
    if (content.startsWith('!')) return { refused: content.slice(1), code: content === absent ? 404 : 403, revision }
    return { bytes: Buffer.from(content), revision }
  }

  /** What each provisioner has of a value, whether it lives or not. */
  contents (name: ValueName): Content[] { return this.followers.map(({ at }) => this.#content(at, name)) }
  content (name: ValueName): Content { return this.#content(this.#timeline.length - 1, name) }
  /** Whether the bucket was ever restored or made anew. */
  get restarted (): boolean { return this.#timeline.slice(1).some(({ anew }) => anew) }
  /** Whether all provisioners live and have followed to the end. */
  get settled (): boolean { return this.followers.every(({ at, life }) => life === 'up' && at === this.#timeline.length - 1) }

  get #newest (): State { return this.#timeline.at(-1) as State }
  #follower (which: number): Follower { return this.followers[which] as Follower }
  #everything (at: number): Word[] {
    return modules.flatMap((module) => kinds.map((kind) => ({ module, kind, revision: this.#revision(at, module) })))
  }

  #content (at: number, name: ValueName): Content {
    return (this.#timeline[at] as State).modules[name.module]?.contents?.[idOf(name)] ?? absent
  }

  #revision (at: number, module: string): Word['revision'] {
    const { epoch, seq, modules } = this.#timeline[at] as State
    const of = modules[module]
    return { epoch, revision: of?.contents ? of.revision : seq }
  }
}
