/** Files that are read again once they changed, while the last good content stays. */
import { readFileSync } from 'node:fs'
import { limits } from '../core/limits.js'
import { messageOf } from '../core/errors.js'
import { fileVersion } from '../file-version.js'

function textOf (path: string): string {
  let bytes: Buffer
  try {
    bytes = readFileSync(path)
  } catch (error) {
    throw new Error(`${path} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`)
  }
  if (bytes.length > limits.pemBytes) throw new Error(`${path} is larger than ${limits.pemBytes} bytes`)
  return bytes.toString('utf8')
}

/**
 * What some files say together. Files that belong together are not written in one moment: what cannot be used as it stands (half
 * written, a key beside the certificate before it) is told once and tried again at each look, and what was good before stays.
 */
export class WatchedFiles<T> {
  /** What the files said when they were last good. */
  value: T
  #versions: string | undefined
  #texts: string[]
  #lastTrouble = ''

  /** Throws where the files cannot be used. `parse` throws with the reason, for whoever wrote them. */
  constructor (
    private readonly paths: readonly string[],
    private readonly parse: (texts: string[]) => T,
    private readonly trouble: (why: string) => void
  ) {
    this.#versions = this.#look()
    this.#texts = paths.map(textOf)
    this.value = parse(this.#texts)
  }

  /** Reads the files where one was written since the last look; says whether `value` is another one now. */
  changed (): boolean {
    const versions = this.#look()
    if (versions === this.#versions) return false
    try {
      const texts = this.paths.map(textOf)
      const differ = texts.some((text, i) => text !== this.#texts[i])
      if (differ) this.value = this.parse(texts)
      // Those from before the reading: a write in between is then seen by the next look.
      this.#versions = versions
      this.#texts = texts
      this.#lastTrouble = ''
      return differ
    } catch (error) {
      this.#versions = undefined
      const why = messageOf(error)
      if (why !== this.#lastTrouble) this.trouble(why)
      this.#lastTrouble = why
      return false
    }
  }

  #look (): string { return this.paths.map(fileVersion).join(' ') }
}
