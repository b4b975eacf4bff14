/** Core's Provisioner port on the bus: asks the node's provisioner, and judges whether its reply is one (DESIGN section 4). */
import type { Msg } from 'nats'
import { MeshError } from '../core/errors.js'
import type { ValueName } from '../core/names.js'
import type { Answer, Keys, Provisioner } from '../core/ports.js'
import { parseRevision, type Revision } from '../core/revision.js'
import { serviceError, type Asker } from './asker.js'
import { headersOf } from './headers.js'
import { revisionHeader, subjects } from './subjects.js'

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const nothing = new Uint8Array(0)

const broken = (why: string): MeshError => new MeshError('bad-answer', `the provisioner's answer was broken: ${why}`)

/** A reason as it may be handed on: no control characters, and no longer than a sentence. */
// eslint-disable-next-line no-control-regex
const sentence = (reason: string): string => reason.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ').slice(0, 500)

function revisionOf (msg: Msg): Revision {
  const revision = parseRevision(headersOf(msg)?.get(revisionHeader) || undefined)
  if (!revision) throw broken('it bears no Mesh-Revision of the form EPOCH.REVISION')
  return revision
}

/** Throws for a services error other than the two that are answers. */
function refusalOf (msg: Msg): { code: 403 | 404, reason: string } | undefined {
  const error = serviceError(msg)
  if (!error) return undefined
  const reason = sentence(error.reason)
  if (error.code !== 403 && error.code !== 404) throw broken(`error ${error.code}${reason ? `, ${reason}` : ''}`)
  return { code: error.code, reason: reason || (error.code === 403 ? 'no reason was given' : 'no such value is declared') }
}

function jsonOf (msg: Msg): unknown {
  try {
    return JSON.parse(decoder.decode(msg.data))
  } catch {
    throw broken('it is no JSON')
  }
}

export class ProvisionerClient implements Provisioner {
  constructor (private readonly node: string, private readonly timeoutMs: number, private readonly asker: () => Asker | undefined) {}

  async ask ({ module, kind, key }: ValueName): Promise<Answer> {
    const msg = await this.#ask(subjects.get(this.node, module), encoder.encode(JSON.stringify({ kind, key })))
    const refusal = refusalOf(msg)
    const revision = revisionOf(msg)
    if (refusal) return { refused: refusal.reason, code: refusal.code, revision }
    jsonOf(msg) // only JSON is a value; its bytes are handed on as they are
    return { bytes: msg.data, revision }
  }

  async list (module: string): Promise<Keys> {
    const msg = await this.#ask(subjects.list(this.node, module), nothing)
    const refusal = refusalOf(msg)
    if (refusal) throw new MeshError('refused', refusal.reason)
    revisionOf(msg)
    const keys = jsonOf(msg) as Partial<Keys> | null
    for (const kind of ['config', 'bound'] as const) {
      if (!Array.isArray(keys?.[kind]) || !keys[kind].every((key) => typeof key === 'string')) throw broken(`it has no list of ${kind} keys`)
    }
    return keys as Keys
  }

  async #ask (subject: string, payload: Uint8Array): Promise<Msg> {
    const asker = this.asker()
    if (!asker) throw new MeshError('unavailable', 'the gateway is not connected to the bus')
    return asker.ask(subject, payload, this.timeoutMs)
  }
}
