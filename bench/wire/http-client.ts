/**
 * The least of an HTTP client: one request at a time on a keep-alive connection, always the same bytes. It must cost far less
 * than the server it loads, so the first answer is parsed and those after it are counted in bytes.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

// One buffer for all connections: what is read is looked at before the next read.
const shared = Buffer.allocUnsafeSlow(256 * 1024)

/** How long the first answer is in bytes; undefined while it is not whole. Throws for a status that was not expected. */
function answerLength (text: string, status: number): number | undefined {
  const end = text.indexOf('\r\n\r\n')
  if (end === -1) return undefined
  if (Number(text.slice(9, 12)) !== status) throw new Error(`the answer was ${text.slice(9, 12)}, not ${status}: ${text.slice(end + 4, end + 300)}`)
  const length = /\r\ncontent-length: *(\d+)/i.exec(text.slice(0, end + 2))
  if (!length && status !== 304) throw new Error('the answer has no Content-Length')
  const total = end + 4 + Number(length?.[1] ?? 0)
  return text.length >= total ? total : undefined
}

export class HttpClient {
  #socket: Socket | undefined
  #first = ''
  #expected: number | undefined
  #got = 0
  #done: (error?: Error) => void = () => {}

  constructor (private readonly port: number, private readonly request: Buffer, private readonly status: number) {}

  async open (): Promise<this> {
    this.#socket = connect({
      host: '127.0.0.1',
      port: this.port,
      noDelay: true,
      onread: { buffer: shared, callback: (bytes) => { this.#read(bytes); return true } }
    })
    await once(this.#socket, 'connect')
    this.#socket.on('error', (error) => this.#done(error))
    this.#socket.on('close', () => this.#done(new Error('the server closed the connection')))
    return this
  }

  /** Sends the request; `done` is called when the answer is whole, or with the error. */
  send (done: (error?: Error) => void): void {
    this.#got = 0
    this.#done = (error) => {
      this.#done = () => {}
      done(error)
    }
    this.#socket!.write(this.request)
  }

  close (): void {
    this.#done = () => {}
    this.#socket?.destroy()
  }

  #read (bytes: number): void {
    if (this.#expected === undefined) {
      this.#first += shared.toString('latin1', 0, bytes)
      try {
        this.#expected = answerLength(this.#first, this.status)
      } catch (error) {
        return this.#done(error as Error)
      }
      if (this.#expected !== undefined) this.#done()
      return
    }
    if (this.#got === 0 && Number(shared.toString('latin1', 9, 12)) !== this.status) return this.#done(new Error(`an answer was ${shared.toString('latin1', 9, 12)}`))
    this.#got += bytes
    if (this.#got === this.#expected) this.#done()
    else if (this.#got > this.#expected) this.#done(new Error('an answer was longer than the first'))
  }
}
