/** Bus users of modules: nkeys whose seed only the node can open (DESIGN section 5). */
import { createCurve, createUser } from 'nkeys.js'
import type { Credential } from '../schemas/composition.js'

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
