/** What a provisioner could answer, and the words it could say: any bytes, headers and revisions. */
import { connect, type Socket } from 'node:net'
import fc from 'fast-check'
import { headers } from 'nats'
import { parseRevision } from '../../../src/core/revision.js'
import { HOST } from '../../support/machine.js'
import { parsed } from '../../support/wire/bytes.js'
import { atEnd } from '../../support/owner.js'
import { eventually } from '../../support/until.js'
import { http } from '../../support/wire/http.js'
import { ws, type WatchSocket } from '../../support/wire/websocket.js'
import { kind } from '../kind.js'
import { anyText, documentBytes, mutatedText } from '../mutate.js'
import { valueMark, type Stage } from '../stage.js'

const revision = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('1700000000000.7', '1700000000000.8') },
  { weight: 1, arbitrary: fc.constantFrom('', '.', '1', '1.', '.1', '-1.2', '1.2.3', '1e3.1', '9999999999999999.1', '999999999999999.999999999999999', '0.0', ' 1.1 ') },
  { weight: 1, arbitrary: mutatedText(fc.constant('1700000000000.7'), 2) }
)
/** A header line's text cannot hold a line end; all else it can. */
const line = (text: fc.Arbitrary<string>): fc.Arbitrary<string> => text.map((one) => one.replace(/[\r\n]/g, ' '))

const headerBlock: fc.Arbitrary<string> = fc.oneof(
  { weight: 5, arbitrary: line(revision).map((one) => `NATS/1.0\r\nMesh-Revision: ${one}\r\n\r\n`) },
  {
    weight: 3,
    arbitrary: fc.tuple(line(revision), fc.oneof(fc.constantFrom('403', '404', '500', '400', '', '0', '403.0', '1e3', '-403', 'x'), line(anyText)), line(anyText))
      .map(([one, code, why]) => `NATS/1.0\r\nMesh-Revision: ${one}\r\nNats-Service-Error-Code: ${code}\r\nNats-Service-Error: ${why}\r\n\r\n`)
  },
  { weight: 2, arbitrary: mutatedText(fc.constant('NATS/1.0\r\nMesh-Revision: 1700000000000.7\r\nNats-Service-Error-Code: 403\r\n\r\n'), 3) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      'NATS/1.0\r\n\r\n', 'NATS/1.0 503\r\n\r\n', 'NATS/1.0 503 No Responders\r\n\r\n', 'NATS/1.0 x\r\n\r\n', '\r\n', 'x', '',
      'NATS/1.0\r\n: \r\n\r\n', 'NATS/1.0\r\nx\r\n\r\n')
  }
)
const value = fc.constantFrom<unknown>(1, null, false, '', valueMark, { a: [1.5, valueMark] }, [])
const body = fc.oneof(
  { weight: 3, arbitrary: value.map((one) => Buffer.from(JSON.stringify(one))) },
  { weight: 2, arbitrary: documentBytes(value) },
  { weight: 1, arbitrary: fc.constant(Buffer.alloc(0)) }
)

const word = fc.record({
  head: headerBlock,
  body: fc.oneof(fc.constantFrom('{"kind":"config"}', '{"kind":"config","key":"KEY"}', '{"kind":"bound"}').map((one) => Buffer.from(one)), documentBytes(fc.constant({ kind: 'config', key: 'KEY' })))
})

interface Drawn { head: string, body: Buffer, words: Array<{ head: string, body: Buffer }>, watched: boolean }

/** A provisioner of m3 as bytes on the bus: no client library tidies what it says. */
class RawProvisioner {
  answer = { head: 'NATS/1.0\r\nMesh-Revision: 1700000000000.7\r\n\r\n', body: Buffer.from('1') as Buffer }
  said = 0
  readonly #socket: Socket
  #read = ''

  constructor (port: number) {
    this.#socket = connect(port, HOST)
    this.#socket.on('data', (data) => this.#hear(data.toString('latin1')))
    this.#socket.on('error', () => { /* the test ends */ })
  }

  async start (): Promise<this> {
    this.#socket.write('CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\nSUB mesh.provision.node-a.m3.get 1\r\nSUB mesh.provision.node-a.m3.list 2\r\nPING\r\n')
    await eventually('the raw provisioner listens', () => this.#pongs > 0)
    return this
  }

  stop (): void { this.#socket.destroy() }

  #pongs = 0

  #hear (data: string): void {
    this.#read += data
    for (let end = this.#read.indexOf('\r\n'); end >= 0; end = this.#read.indexOf('\r\n')) {
      const head = this.#read.slice(0, end)
      const [, reply, length] = /^MSG \S+ \S+ (\S+) (\d+)$/.exec(head) ?? []
      const whole = end + 2 + (length === undefined ? 0 : Number(length) + 2)
      if (this.#read.length < whole) return
      this.#read = this.#read.slice(whole)
      if (head === 'PING') this.#socket.write('PONG\r\n')
      if (head === 'PONG') this.#pongs++
      if (reply !== undefined) {
        this.said++
        this.publish(reply, this.answer.head, this.answer.body)
      }
    }
  }

  publish (subject: string, head: string, body: Buffer): void {
    const headers = Buffer.from(head)
    // A header block of nothing is no header at all.
    const line = headers.length === 0 ? `PUB ${subject} ${body.length}\r\n` : `HPUB ${subject} ${headers.length} ${headers.length + body.length}\r\n`
    this.#socket.write(Buffer.concat([Buffer.from(line), headers, body, Buffer.from('\r\n')]))
  }
}

interface Made { raw: RawProvisioner, keys: number }
const made = new WeakMap<Stage, Promise<Made>>()

async function make (stage: Stage): Promise<Made> {
  const said = headers()
  // Later than whatever the stand-in said before.
  said.set('Mesh-Revision', `${Date.now()}.1`)
  stage.prov.stop()
  // The stand-in's queue answers for all modules: it makes place for one that leaves m3 alone.
  for (const module of ['m1', 'm2']) {
    stage.nc.subscribe(`mesh.provision.node-a.${module}.get`, {
      callback: (_error, message) => { message.respond(Buffer.from(module === 'm1' ? '8080' : '9090'), { headers: said }) }
    })
  }
  await stage.nc.flush()
  const raw = await new RawProvisioner(stage.server.port).start()
  atEnd(stage.owner, () => raw.stop())
  return { raw, keys: 0 }
}

/** The answers that a value's ask may have. */
const statuses = [200, 403, 404, 502, 503, 504]

export const repliesKind = kind<Drawn>({
  promise: 'whatever a provisioner says, a get is answered with the very bytes or a documented error, and a watch is handed nothing else',
  runs: 120,
  input: fc.record({ head: headerBlock, body, words: fc.array(word, { maxLength: 3 }), watched: fc.boolean() }),
  async attempt (stage, { head, body, words, watched }) {
    let promise = made.get(stage)
    if (!promise) made.set(stage, promise = make(stage))
    const at = await promise
    const { raw } = at
    const key = `k${at.keys++}`
    raw.answer = { head, body }
    const token = stage.tokens.m3
    let socket: WatchSocket | undefined
    if (watched) {
      socket = await ws(stage.owner, stage.port, { token })
      await socket.watch('config', key, { keep: true })
    }
    for (const { head, body } of words) raw.publish('mesh.provision.node-a.m3.changed', head, Buffer.from(body.toString('latin1').replaceAll('KEY', key), 'latin1'))
    const { status, data, json, ms } = await http(stage.port, 'GET', `/provision/config/${key}`, { token })
    const listed = await http(stage.port, 'GET', '/provision/config', { token })
    const changes = socket?.texts() ?? []
    socket?.end()
    if (!statuses.includes(status) || !statuses.includes(listed.status)) throw new Error(`answered ${status}, and the list ${listed.status} after ${ms} ms: ${listed.body.slice(0, 200)}`)
    if (status === 200 && !data.equals(body)) throw new Error(`what is handed is not what was said: ${data.toString()}`)
    if (status === 200 && parsed(body.toString()) === undefined) throw new Error(`what is no JSON was handed: ${data.toString()}`)
    if (status === 200 && !head.includes('Mesh-Revision')) throw new Error('an answer without a revision was taken')
    if (status >= 400 && JSON.stringify(json).includes(valueMark)) throw new Error(`the error holds the value: ${JSON.stringify(json)}`)
    for (const { params, result } of changes) {
      const handed: unknown = (result ?? params)?.value
      if (handed !== undefined && JSON.stringify(handed) !== JSON.stringify(parsed(body.toString()))) throw new Error(`a watch was handed ${JSON.stringify(handed)}`)
    }
    const [, plain] = /^NATS\/1\.0\r\nMesh-Revision: (.*)\r\n\r\n$/.exec(head) ?? []
    const isGood = plain !== undefined && parseRevision(plain) && parsed(body.toString()) !== undefined && body.equals(Buffer.from(body.toString()))
    if (words.length === 0 && status !== 200 && isGood) {
      throw new Error(`a good answer is answered with ${status}: ${JSON.stringify(json)}`)
    }
    return String(status)
  }
})
