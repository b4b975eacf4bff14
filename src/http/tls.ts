/** TLS of the gateway's own port: its certificate and key, the authorities of client certificates, and all of them taken anew once written. */
import { createPrivateKey, randomBytes, X509Certificate, type KeyObject } from 'node:crypto'
import type { ServerOptions } from 'node:https'
import { createSecureContext, type Server } from 'node:tls'
import { ConfigError, type Environment } from '../config.js'
import { messageOf } from '../core/errors.js'
import { limits } from '../core/limits.js'
import { Anchors, rootsIn } from '../identity/anchors.js'
import { WatchedFiles } from '../identity/watched-files.js'

type Variables = Pick<Environment, 'TLS_CERT' | 'TLS_KEY' | 'TLS_CLIENT_CA'>
/** Told what is in the way of taking files anew, and what was taken; sentences for the log. */
export interface TlsListener { trouble (why: string): void, taken (what: string): void }

interface Pair { cert: string, key: string }

const minVersion = 'TLSv1.2' as const

function certificateOf (pem: string): X509Certificate {
  try { return new X509Certificate(pem) } catch { throw new Error('TLS_CERT holds no certificate in PEM') }
}

function keyOf (pem: string): KeyObject {
  // OpenSSL's words could hold what stands in the file.
  try { return createPrivateKey(pem) } catch { throw new Error('TLS_KEY holds no private key in PEM without a passphrase') }
}

/** A certificate and its key that go together; throws with a reason that names the variable. */
function pairOf ([cert = '', key = '']: string[]): Pair {
  if (!certificateOf(cert).checkPrivateKey(keyOf(key))) throw new Error('TLS_KEY holds the key of another certificate than the one in TLS_CERT')
  try {
    createSecureContext({ cert, key, minVersion })
  } catch (error) {
    throw new Error(`TLS_CERT cannot be served: ${messageOf(error)}`)
  }
  return { cert, key }
}

function authoritiesOf ([pem = '']: string[]): { pem: string, roots: X509Certificate[] } {
  try {
    const roots = rootsIn(pem)
    // What TLS itself would refuse must not come as far as a server that listens.
    createSecureContext({ ca: pem })
    return { pem, roots }
  } catch (error) {
    throw new Error(`TLS_CLIENT_CA ${messageOf(error)}`)
  }
}

/** Reads files for the first time; throws a ConfigError, one line that names the variable. */
function open<T> (paths: string[], parse: (texts: string[]) => T, trouble: (why: string) => void): WatchedFiles<T> {
  try {
    return new WatchedFiles(paths, parse, trouble)
  } catch (error) {
    throw new ConfigError(messageOf(error))
  }
}

/** What the port is served with. Undefined where TLS_CERT is not set: the port is plain HTTP then. Throws a ConfigError. */
export function openTls ({ TLS_CERT, TLS_KEY, TLS_CLIENT_CA }: Variables, listener: TlsListener): Tls | undefined {
  if (TLS_CERT === undefined || TLS_KEY === undefined) return undefined
  const pair = open([TLS_CERT, TLS_KEY], pairOf, listener.trouble)
  return new Tls(pair, TLS_CLIENT_CA === undefined ? undefined : open([TLS_CLIENT_CA], authoritiesOf, listener.trouble), listener)
}

export class Tls {
  /** What client certificates stand on; undefined where none are asked for. */
  readonly anchors: Anchors | undefined

  constructor (
    private readonly pair: WatchedFiles<Pair>,
    private readonly authorities: WatchedFiles<{ pem: string, roots: X509Certificate[] }> | undefined,
    private readonly listener: TlsListener
  ) {
    if (!authorities) return
    this.anchors = new Anchors()
    this.#setAnchors()
  }

  /** For the server that is made; from then on `follow` keeps it current. */
  get options (): ServerOptions {
    return {
      ...this.#context,
      handshakeTimeout: limits.handshakeMs,
      // Asked for and not required: a token does as well. What is sent and does not verify is refused by us, as any bad credential.
      requestCert: this.anchors !== undefined,
      rejectUnauthorized: false
    }
  }

  /** Has a server take the files anew when they change; connections that stand go on. Returns what ends that. */
  follow (server: Server): () => void {
    const timer = setInterval(() => this.look(server), limits.tlsLookMs)
    timer.unref()
    return () => clearInterval(timer)
  }

  /** Looks at the files once. */
  look (server: Server): void {
    const pairChanged = this.pair.changed()
    const authoritiesChanged = this.authorities?.changed() ?? false
    if (!pairChanged && !authoritiesChanged) return
    // First what is believed, then what is shown: a request in between finds the new authorities.
    if (authoritiesChanged) this.#setAnchors()
    server.setSecureContext(this.#context)
    // Else a session that was made under the old authorities could be resumed, and no certificate would be looked at again.
    if (authoritiesChanged) server.setTicketKeys(randomBytes(48))
    if (pairChanged) this.listener.taken('TLS_CERT and TLS_KEY')
    if (authoritiesChanged) this.listener.taken('TLS_CLIENT_CA')
  }

  #setAnchors (): void {
    if (this.authorities) this.anchors?.set(this.authorities.value.pem, this.authorities.value.roots)
  }

  get #context (): { cert: string, key: string, ca?: string, minVersion: 'TLSv1.2' } {
    return { ...this.pair.value, ...(this.anchors ? { ca: this.anchors.pem } : {}), minVersion }
  }
}
