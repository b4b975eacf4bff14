import { MeshError } from '../core/errors.js'

/** Who is asking, proved. `expiresAt` is the credential's own end in ms, without leeway (DESIGN section 8). */
export interface Principal {
  role: 'module' | 'operator' | 'reader'
  /** The module's name, or the person's. */
  name: string
  expiresAt: number
  /**
   * The keys that this stands on, each by a digest: of the public key that signed the token, or of the certificate's trust anchor. Shared
   * by all that stand on the same.
   */
  keys: readonly string[]
}

/**
 * The one answer to every credential that is none, so that nobody learns from it what to try next. `reason` is for a debug
 * log, as the error's cause; it never holds the credential or a part of it.
 */
export const unauthenticated = (reason: string): MeshError => new MeshError(
  'unauthenticated',
  'No valid credential was sent: send one token of this mesh, not expired, as "Authorization: Bearer TOKEN".',
  { cause: new Error(reason) }
)
