import { MeshError } from '../errors.js'
import { readableKinds, whyNoKey, type Kind, type ValueName } from '../names.js'

const whyNoSecret = 'a secret is not answered at runtime: it would go to whoever holds a token. ' +
  "A module's secrets reach it through whatever launches its bundle; only config and bound values are read here"

/** Throws `refused` for the kind `secret`, with the reason and asking nobody, and `invalid` for any other that is not read. */
export function checkKind (kind: unknown): asserts kind is Kind {
  if (kind === 'secret') throw new MeshError('refused', whyNoSecret)
  if (!readableKinds.includes(kind as Kind)) throw new MeshError('invalid', 'the kind is none that is read: name config or bound')
}

/** The value a caller asks of its own module; throws as DESIGN section 2.2 says. A module's name is never read from what is asked. */
export function askedValue (module: string, kind: unknown, key: unknown): ValueName {
  const missing = [['kind', kind], ['key', key]].filter(([, given]) => given === undefined || given === '').map(([name]) => name)
  if (missing.length > 0) throw new MeshError('invalid', `no ${missing.join(' and no ')} given: name a kind (config or bound) and a key`)
  checkKind(kind)
  const why = whyNoKey(key)
  if (why) throw new MeshError('invalid', `the key ${why}`)
  return { module, kind, key: key as string }
}
