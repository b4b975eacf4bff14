/** A mesh description in YAML, read and checked: each error names the file, the line and the member. */
import { readFile } from 'node:fs/promises'
import type { Static, TSchema } from '@sinclair/typebox'
import { ValueErrorType, type ValueError } from '@sinclair/typebox/errors'
import { Value } from '@sinclair/typebox/value'
import { isScalar, LineCounter, parseDocument, visit, type Document, type Node } from 'yaml'
import { checkManifest, checkSetting, own } from '../core/compose/manifest.js'
import { canonical, lostNumber, parseJson } from '../core/documents.js'
import { messageOf } from '../core/errors.js'
import { namePattern, printable, quoted, whyNoKey } from '../core/names.js'
import { MeshDescriptionSchema, type MeshDescription } from '../schemas/mesh-description.js'

/** A description that does not fit: one sentence, with the place in the file. */
export class BadMeshFile extends Error {
  override readonly name = 'BadMeshFile'
}

type Path = Array<string | number>

/** A file's text as a document, and the place of each member in it. */
class MeshText {
  readonly #lines = new LineCounter()
  readonly #document: Document

  constructor (private readonly file: string, text: string) {
    this.#document = parseDocument(text, { lineCounter: this.#lines, schema: 'core' })
    const [error] = this.#document.errors
    if (error) throw new BadMeshFile(`${file}:${error.linePos?.[0].line ?? 1}: ${error.message.split('\n')[0]?.replace(/ at line \d+, column \d+:?$/, '')}`)
    visit(this.#document, {
      Scalar: (_, node) => {
        if (typeof node.value !== 'number') return
        // What YAML reads as a number and JSON cannot carry, digit by digit, would change on its way.
        const lost = !Number.isFinite(node.value) || (node.format ? !Number.isSafeInteger(node.value) : lostNumber(node.source ?? '') !== undefined)
        if (lost) throw new BadMeshFile(`${file}:${this.#lineOf(node)}: the number ${printable(node.source ?? '', 40)} is none that a double holds: write it as a string`)
      }
    })
  }

  value (): unknown {
    try {
      const value: unknown = this.#document.toJS({ maxAliasCount: 100 }) ?? {}
      // Depth and size, as in a bucket.
      return parseJson(this.file, canonical(value))
    } catch (error) {
      throw new BadMeshFile(messageOf(error))
    }
  }

  /** An error at a member, or at the nearest that is there. */
  error (path: Path, what: string): BadMeshFile {
    let there = [...path]
    let node: unknown
    while (there.length > 0 && !(node = this.#nodeAt(there))) there = there.slice(0, -1)
    const line = this.#lineOf((node ?? this.#document.contents) as Node | null)
    const member = path.map((step, i) => typeof step === 'number' ? `[${step}]` : `${i > 0 ? '.' : ''}${printable(step, 64)}`).join('')
    return new BadMeshFile(`${this.file}:${line}: ${member ? `${member} ` : ''}${what}`)
  }

  /** A scalar as it is written; empty where there is none. */
  sourceAt (path: Path): string {
    const node = this.#nodeAt(path)
    return isScalar(node) ? node.source ?? '' : ''
  }

  #nodeAt (path: Path): unknown { return this.#document.getIn(path, true) }

  #lineOf (node: Node | null): number {
    return node?.range ? this.#lines.linePos(node.range[0]).line : 1
  }
}

/** The steps of a JSON pointer; a number where the member is in a list. */
const stepsOf = (pointer: string): Path => pointer.split('/').slice(1)
  .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~')).map((step) => /^\d+$/.test(step) ? Number(step) : step)

/** What YAML made of a text that was meant as one, and how to mend it; nothing where it made no scalar of another kind. */
function unquoted (value: unknown, source: string): string {
  if (value === null) return source === '' ? ', but nothing stands there' : `, but YAML reads ${printable(source, 40)} as null: put it in quotes`
  const kind = typeof value
  return kind === 'number' || kind === 'boolean' ? `, but YAML reads ${printable(source, 40)} as a ${kind}: put it in quotes` : ''
}

function whatIsWrong (error: ValueError, source: string): string {
  const schema = error.schema as { type?: string, properties?: object, patternProperties?: object, pattern?: string }
  if (error.type === ValueErrorType.ObjectRequiredProperty) return 'is missing'
  if (error.type === ValueErrorType.ObjectAdditionalProperties) {
    return schema.patternProperties
      ? `is no name: expected one that matches ${namePattern}`
      : `is not known here: expected ${Object.keys(schema.properties ?? {}).join(', ')}`
  }
  const hint = schema.type === 'string' ? unquoted(error.value, source) : ''
  return `does not fit: ${error.message.charAt(0).toLowerCase()}${error.message.slice(1)}${hint}`
}

function checked<S extends TSchema> (text: MeshText, schema: S, value: unknown): Static<S> {
  const first = Value.Errors(schema, value).First()
  if (!first) return value as Static<S>
  const path = stepsOf(first.path)
  throw text.error(path, whatIsWrong(first, text.sourceAt(path)))
}

/** What no schema says: keys, manifests, and whether settings and bindings fit the manifests that stand in the same file. */
function checkModules (text: MeshText, { modules = {} }: MeshDescription): void {
  for (const [module, { build, bindings = {}, settings = {} }] of Object.entries(modules)) {
    for (const [part, keys] of Object.entries({ bindings, settings })) {
      for (const key of Object.keys(keys)) {
        const why = whyNoKey(key)
        if (why !== undefined) throw text.error(['modules', module, part], `has a key, ${quoted(key)}, that ${why}`)
      }
    }
    if (!build) continue
    const manifest = { ...build.manifest, module: build.manifest.module ?? module }
    try {
      checkManifest(module, manifest)
    } catch (error) {
      throw text.error(['modules', module, 'build', 'manifest'], `cannot be taken in: ${messageOf(error)}`)
    }
    for (const [key, value] of Object.entries(settings)) {
      const why = checkSetting(manifest, key, value)
      if (why !== undefined) throw text.error(['modules', module, 'settings', key], `cannot stand: ${why}`)
    }
    for (const [key, to] of Object.entries(bindings)) {
      const path = ['modules', module, 'bindings', key]
      if (own(manifest.bound, key) === undefined) throw text.error(path, `binds nothing: the manifest of ${module} declares no bound key ${quoted(key)}`)
      const offering = own(modules, to.module)?.build?.manifest
      if (offering && !Object.hasOwn(offering.offers ?? {}, to.offer)) {
        throw text.error([...path, 'offer'], `names the offer ${quoted(to.offer)}, but the manifest of ${to.module} here offers no such thing`)
      }
    }
  }
}

/** A mesh description, and a way to say where in its file something is. */
export interface MeshFile { mesh: MeshDescription, errorAt (path: Path, what: string): BadMeshFile }

/** Reads a description from text; throws BadMeshFile. */
export function parseMeshFile (file: string, source: string): MeshFile {
  const text = new MeshText(file, source)
  const mesh = checked(text, MeshDescriptionSchema, text.value())
  checkModules(text, mesh)
  return { mesh, errorAt: (path, what) => text.error(path, what) }
}

/** The same from a file. */
export async function readMeshFile (file: string): Promise<MeshFile> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    throw new BadMeshFile(`${file} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`)
  }
  return parseMeshFile(file, text)
}
