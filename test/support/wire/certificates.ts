/** Certificates made with nothing but node:crypto: an authority, one under it, and leaves that say whatever a test wants them to. */
import { generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto'

/** A tag, the length in DER's form, and the content. */
function der (tag: number, ...content: Buffer[]): Buffer {
  const body = Buffer.concat(content)
  const size = body.length < 0x80 ? [body.length] : body.length < 0x100 ? [0x81, body.length] : [0x82, body.length >> 8, body.length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...size]), body])
}

const sequence = (...content: Buffer[]): Buffer => der(0x30, ...content)
const octets = (content: Buffer): Buffer => der(0x04, content)
const bits = (content: Buffer, unused = 0): Buffer => der(0x03, Buffer.from([unused]), content)
const boolean = (value: boolean): Buffer => der(0x01, Buffer.from([value ? 0xff : 0]))
const oid = (hex: string): Buffer => der(0x06, Buffer.from(hex, 'hex'))

const ids = {
  ecdsaWithSha256: '2a8648ce3d040302', commonName: '550403', subjectAltName: '551d11', basicConstraints: '551d13', keyUsage: '551d0f'
}

const nameOf = (commonName: string): Buffer => sequence(der(0x31, sequence(oid(ids.commonName), der(0x0c, Buffer.from(commonName)))))
const time = (ms: number): Buffer => der(0x18, Buffer.from(`${new Date(ms).toISOString().replace(/[-:T]/g, '').slice(0, 14)}Z`))
const extension = (id: string, critical: boolean, value: Buffer): Buffer => sequence(oid(id), ...(critical ? [boolean(true)] : []), octets(value))

/** Alternative names by their kind; `uri` and `dns` as text that is not looked at. */
export interface Names { uri?: string[], dns?: string[], ip?: number[][] }

function alternativeNames ({ uri = [], dns = [], ip = [] }: Names): Buffer {
  return sequence(
    ...dns.map((one) => der(0x82, Buffer.from(one))),
    ...uri.map((one) => der(0x86, Buffer.from(one))),
    ...ip.map((one) => der(0x87, Buffer.from(one)))
  )
}

export interface Wanted extends Names {
  commonName?: string
  /** In ms; from an hour ago to a day ahead where nothing is said. */
  notBefore?: number
  notAfter?: number
  /** Whether it may sign others. */
  ca?: boolean
}

/** A certificate with its key, both as PEM too; `chain` is it and those between it and its root, as a server or client sends them. */
export interface Certificate { cert: string, key: string, chain: string, commonName: string, privateKey: KeyObject }

const hour = 3_600_000
let made = 0

/** A certificate signed by `issuer`, or by itself. */
export function certificate (wanted: Wanted = {}, issuer?: Certificate): Certificate {
  const { commonName = `test ${++made}`, notBefore = Date.now() - hour, notAfter = Date.now() + 24 * hour, ca = false } = wanted
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const algorithm = sequence(oid(ids.ecdsaWithSha256))
  const hasNames = [wanted.uri, wanted.dns, wanted.ip].some((names) => names !== undefined && names.length > 0)
  const content = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    nameOf(issuer?.commonName ?? commonName),
    sequence(time(notBefore), time(notAfter)),
    nameOf(commonName),
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(
      extension(ids.basicConstraints, true, sequence(...(ca ? [boolean(true)] : []))),
      // keyCertSign and cRLSign, or digitalSignature.
      extension(ids.keyUsage, true, ca ? bits(Buffer.from([0x06]), 1) : bits(Buffer.from([0x80]), 7)),
      ...(hasNames ? [extension(ids.subjectAltName, false, alternativeNames(wanted))] : [])
    ))
  )
  const signature = sign('sha256', content, issuer?.privateKey ?? privateKey)
  const cert = pem('CERTIFICATE', sequence(content, algorithm, bits(signature)))
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  // What signs itself need not be sent: whoever trusts it has it.
  return { cert, key, chain: issuer === undefined ? '' : cert + issuer.chain, commonName, privateKey }
}

const pem = (label: string, bytes: Buffer): string =>
  `-----BEGIN ${label}-----\n${bytes.toString('base64').replace(/.{64}(?=.)/g, '$&\n')}\n-----END ${label}-----\n`

/** An authority whose certificates a test trusts. */
export const authority = (wanted: Wanted = {}, issuer?: Certificate): Certificate => certificate({ ca: true, ...wanted }, issuer)

/** A certificate for the gateway's own port, on loopback. */
export const serverCertificate = (issuer: Certificate): Certificate => certificate({ dns: ['localhost'], ip: [[127, 0, 0, 1]] }, issuer)
