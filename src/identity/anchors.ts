/** The authorities of client certificates: what `TLS_CLIENT_CA` holds. */
import { X509Certificate } from 'node:crypto'

const block = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]*-----END (?:X509 |TRUSTED )?CERTIFICATE-----/g

/** The certificates of a PEM text; throws where one of them is none. */
export const certificatesIn = (pem: string): X509Certificate[] => (pem.match(block) ?? []).map((one) => new X509Certificate(one))

/** Whether one certificate was signed by another. */
export const isOf = (certificate: X509Certificate, issuer: X509Certificate): boolean =>
  issuer.ca && certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey)

/** Trust anchors, each known by its `fingerprint256`. What they are changes with the file; who holds this sees the present ones. */
export class Anchors {
  #pem = ''
  #roots = new Map<string, X509Certificate>()

  /** The file's text as it is given to TLS. */
  get pem (): string { return this.#pem }

  /** Whether what stands on this anchor still counts. */
  has (fingerprint: string): boolean { return this.#roots.has(fingerprint) }

  set (pem: string, roots: readonly X509Certificate[]): void {
    this.#pem = pem
    this.#roots = new Map(roots.map((root) => [root.fingerprint256, root]))
  }

  /** The anchor that signed a certificate itself. */
  above (certificate: X509Certificate): X509Certificate | undefined {
    for (const root of this.#roots.values()) if (isOf(certificate, root)) return root
    return undefined
  }
}

/** The certificates of an authority's file that sign themselves; throws where it holds none. */
export function rootsIn (pem: string): X509Certificate[] {
  let all: X509Certificate[]
  try {
    all = certificatesIn(pem)
  } catch {
    throw new Error('holds a certificate that cannot be read: expected PEM')
  }
  const roots = all.filter((one) => isOf(one, one))
  if (roots.length === 0) throw new Error('holds no certificate of an authority that signs itself: expected one or more, in PEM')
  return roots
}
