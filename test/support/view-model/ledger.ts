/** What was asked, answered, heard and handed, in order; and from that alone, what may be handed next (DESIGN sections 2, 4). */
import { limits } from '../../../src/core/limits.js'
import type { ValueName } from '../../../src/core/names.js'
import type { Answer, Word } from '../../../src/core/ports.js'
import { isOlder, youngest, type Revision } from '../../../src/core/revision.js'
import type { Said } from '../../../src/core/provision/said.js'
import { idOf, type Content } from './mesh.js'

interface Answered { content: Content, revision: Revision, began: number, came: number }

interface Facts {
  answers: Answered[]
  /** When (in order) an ask of it failed last, and a word of it was heard last. */
  failed: number
  word: number
  /** The youngest word, and the youngest of that and what was accepted. */
  heard?: Revision
  known?: Revision
  /** In ms: when a word younger than all before came, and since when all answers are older than what is known. */
  youngestAt: number
  oldSince?: number
  rewound: number
}

/** A get when it arrives: what it must not be answered from. */
export interface Arrival { name: ValueName, order: number, at: number, noCache: boolean, word: number, heard?: Revision, memory: number | undefined }

export type Cursors = Map<string, Revision>

export const contentOf = (of: Answer | Said): Content => 'refused' in of ? `!${of.refused}` : Buffer.from(of.bytes).toString()

export class Ledger {
  readonly wrongs: string[] = []
  /** Each thing that happens has its number. */
  order = 0
  /** When the provisioner was heard or answered last, in ms. */
  signAt: number
  /** Since when (in order) changes are heard for certain. */
  hearing: number | undefined
  asks = 0
  /** How often a watch was told that it is stale. */
  stales = 0
  readonly #facts = new Map<string, Facts>()

  constructor (private readonly now: () => number, private readonly askTimeoutMs: number) { this.signAt = now() }

  wrong (what: string): void { this.wrongs.push(`at ${this.now()} ms: ${what}`) }

  /** So long without a sign that nobody may believe the provisioner to live. */
  get silent (): boolean { return this.now() - this.signAt > limits.probeAfterMs + this.askTimeoutMs + 3 * limits.viewTickMs }

  /** All answers have been older than what is known for so long that watches are to be told. */
  tooOld (name: ValueName): boolean {
    const { oldSince } = this.#of(name)
    return oldSince !== undefined && this.now() - oldSince > this.askTimeoutMs + limits.viewTickMs
  }

  hears (confirmed: boolean): void {
    this.order++
    if (confirmed && this.hearing === undefined) this.signAt = this.now()
    this.hearing = confirmed ? this.hearing ?? this.order : undefined
  }

  asked (): number {
    this.asks++
    return ++this.order
  }

  answered (name: ValueName, answer: Answer, began: number): void {
    const facts = this.#of(name)
    facts.answers.push({ content: contentOf(answer), revision: answer.revision, began, came: ++this.order })
    this.signAt = this.now()
    if (facts.known && isOlder(answer.revision, facts.known)) facts.oldSince ??= this.now()
    else {
      facts.known = answer.revision
      facts.oldSince = undefined
    }
  }

  failed (name: ValueName, answers: boolean): void {
    this.#of(name).failed = ++this.order
    if (answers) this.signAt = this.now()
  }

  /** A word about some values; `remembers` says of which of them the view has anything that it could keep the word with. */
  heard (word: Word, of: readonly ValueName[], remembers: (name: ValueName) => boolean): void {
    this.order++
    this.signAt = this.now()
    for (const name of of) {
      const facts = this.#of(name)
      facts.word = this.order
      if (!remembers(name)) continue
      if (!facts.known || isOlder(facts.known, word.revision)) facts.youngestAt = this.now()
      facts.heard = youngest(facts.heard, word.revision)
      facts.known = youngest(facts.known, word.revision)
    }
  }

  /** The view says that a bucket was rewound: it must have asked long enough, and long after the last young word. */
  rewound (name: ValueName): void {
    const facts = this.#of(name)
    const last = facts.answers.at(-1) as Answered
    const since = Math.max(facts.oldSince ?? Infinity, facts.youngestAt)
    if (this.now() - since < limits.rewoundAfterMs) this.wrong(`${idOf(name)} is taken for rewound after ${this.now() - since} ms`)
    facts.heard = facts.known = last.revision
    facts.oldSince = undefined
    facts.rewound = ++this.order
  }

  /** The view has nothing of this value in memory, so it cannot know what is older. */
  forgot (name: ValueName): void {
    const facts = this.#of(name)
    facts.heard = facts.known = facts.oldSince = undefined
    facts.rewound = ++this.order
  }

  arrives (name: ValueName, noCache: boolean): Arrival {
    const { word, heard } = this.#of(name)
    const memory = this.silent ? undefined : this.hearing
    return { name, order: ++this.order, at: this.now(), noCache, word, heard, memory }
  }

  /** A get was answered: by an ask that began after the last word, and from memory only where changes were heard ever since. */
  got ({ name, order, noCache, word, heard, memory }: Arrival, content: Content): void {
    const facts = this.#of(name)
    const may = facts.answers.some((answer) => {
      if (answer.content !== content || answer.began < word) return false
      if (heard && facts.rewound < order && isOlder(answer.revision, heard)) return false
      if (noCache) return answer.began > order
      return answer.came > order || (memory !== undefined && answer.began > memory)
    })
    if (!may) this.wrong(`a get${noCache ? ' with no-cache' : ''} of ${idOf(name)} was answered ${content}, which is out of date`)
  }

  /** A get failed: only because an ask did, or in time. */
  gotNothing ({ name, order, at }: Arrival, problem: string): void {
    const justified = problem === 'timeout' ? this.now() - at >= this.askTimeoutMs || this.#of(name).failed > order : this.#of(name).failed > order
    if (!justified) this.wrong(`a get of ${idOf(name)} failed with ${problem} for no reason`)
  }

  /** Something is handed to a connection: never back. The cursor is the oldest revision that it can have been. */
  handed (cursors: Cursors, name: ValueName, content: Content): void {
    const facts = this.#of(name)
    const cursor = cursors.get(`${idOf(name)} ${facts.rewound}`)
    const can = facts.answers
      .filter((answer) => answer.content === content && !(cursor && isOlder(answer.revision, cursor)))
      .map(({ revision }) => revision)
    if (can.length === 0) this.wrong(`${idOf(name)} went back to ${content}`)
    else cursors.set(`${idOf(name)} ${facts.rewound}`, can.reduce((a, b) => isOlder(b, a) ? b : a))
  }

  #of (name: ValueName): Facts {
    const id = idOf(name)
    let facts = this.#facts.get(id)
    if (!facts) this.#facts.set(id, facts = { answers: [], failed: 0, word: 0, youngestAt: -Infinity, rewound: 0 })
    return facts
  }
}
