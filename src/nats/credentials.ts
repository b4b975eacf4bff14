/** Bus users of modules: nkeys whose seed only the node can open (DESIGN section 5). */
import { createCurve, createUser, fromCurveSeed } from 'nkeys.js'
import type { Credential } from '../schemas/composition.js'

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** Makes a user and seals its seed from an ephemeral curve key to `to`. The seed is nowhere in clear afterwards. */
export function makeCredential (to: string): Credential {
  const user = createUser()
  const ephemeral = createCurve()
  try {
    const sealed = ephemeral.seal(user.getSeed(), to)
    return { user: user.getPublicKey(), sealed: Buffer.from(sealed).toString('base64url'), by: ephemeral.getPublicKey(), to }
  } finally {
    user.clear()
    ephemeral.clear()
  }
}

/** The seed in a credential, opened with the node's curve seed. Throws where it was sealed for another node. */
export function openCredential ({ sealed, by }: Credential, curveSeed: string): string {
  const node = fromCurveSeed(encoder.encode(curveSeed.trim()))
  const seed = node.open(new Uint8Array(Buffer.from(sealed, 'base64url')), by)
  if (!seed) throw new Error('the credential does not open with this curve seed: it was sealed for another key')
  return decoder.decode(seed)
}
