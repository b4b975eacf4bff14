/** A client certificate → its principal (DESIGN section 8: X.509-SVID). */
import type { X509Certificate } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { limits } from '../core/limits.js'
import type { Now } from '../core/ports.js'
import { isOf, type Anchors } from './anchors.js'
import { Refusal, spiffeParts, type Rules } from './claims.js'
import type { Principal } from './principal.js'

/** What a connection showed in its handshake: who it is, or why that is nobody. */
export type ShownCertificate = Principal | { refusal: string }

// One name with its kind. Whatever is not plain in a name stands as a JSON string, so no name can look like two.
const entry = /([A-Za-z][A-Za-z0-9 ]*):("(?:[^"\\]|\\.)*"|[^",]*)(?:, |$)/y

/** The URI names of a certificate, as Node prints them; throws a Refusal where they cannot be told apart. */
export function uriNames (subjectAltName: string | undefined): string[] {
  const uris: string[] = []
  const text = subjectAltName ?? ''
  entry.lastIndex = 0
  while (entry.lastIndex < text.length) {
    const found = entry.exec(text)
    if (!found) throw new Refusal('alternative names that cannot be read')
    if (found[1] === 'URI') uris.push(found[2] as string)
  }
  return uris
}

type CertificateRules = Pick<Rules, 'trustDomain' | 'people'>

/** Judges the certificates that TLS has verified. */
export class Certificates {
  /**
   * A resumed session shows the leaf alone, without what stands between it and its anchor. Only who made a whole handshake can resume
   * one, so the leaf was known by then.
   */
  readonly #known = new LRUCache<string, Principal>({ max: limits.knownCertificates })

  constructor (readonly anchors: Anchors, private readonly rules: CertificateRules, private readonly now: Now = Date.now) {}

  /**
   * Who a certificate is of; to be asked once, when the connection stands. `verified` is TLS's own word: it checks signatures, times,
   * purposes and constraints of the whole chain, and without a certificate its word means nothing.
   */
  judge (certificate: X509Certificate, verified: boolean): ShownCertificate {
    try {
      if (!verified) throw new Refusal('a certificate that does not verify')
      if (certificate.ca) throw new Refusal("an authority's certificate in place of one's own")
      const [uri, another] = uriNames(certificate.subjectAltName)
      if (uri === undefined || another !== undefined) throw new Refusal('not exactly one URI in the certificate')
      const [role, name] = spiffeParts(uri, this.rules.trustDomain)
      if (role !== 'module' && !this.rules.people) throw new Refusal(`a certificate makes no ${role} where OPERATOR_JWKS is set`)
      return this.#anchored(certificate, role, name)
    } catch (error) {
      // Whatever else goes wrong with bytes that a stranger chose is no reason to let them in, or to end the process.
      return { refusal: error instanceof Refusal ? error.message : 'a certificate that cannot be read' }
    }
  }

  /** Whether a principal that was judged before may still make a request. */
  stands ({ keys, expiresAt }: Principal): boolean {
    return keys.every((key) => this.anchors.has(key)) && this.now() < expiresAt + limits.clockLeewayS * 1000
  }

  #anchored (leaf: X509Certificate, role: Principal['role'], name: string): Principal {
    const { fingerprint256 } = leaf
    let expiresAt = Infinity
    let below = leaf
    for (let tried = 0; tried < limits.chainLength; tried++) {
      expiresAt = Math.min(expiresAt, Date.parse(below.validTo))
      const anchor = this.anchors.above(below)
      if (anchor) {
        const principal = { role, name, expiresAt: Math.min(expiresAt, Date.parse(anchor.validTo)), keys: [anchor.fingerprint256] }
        this.#known.set(fingerprint256, principal)
        return principal
      }
      const next = below.issuerCertificate
      if (!next || !isOf(below, next)) break
      below = next
    }
    const known = this.#known.get(fingerprint256)
    if (!known) throw new Refusal('no anchor is known for it')
    return known
  }
}
