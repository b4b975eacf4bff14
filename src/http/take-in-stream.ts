/** A take-in as server-sent events: each step as it ends, then how it ended (DESIGN section 6). */
import type { OutgoingHttpHeaders } from 'node:http'
import type { FastifyReply } from 'fastify'
import type { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'
import type { StepDone, TakeInResult } from '../core/take-in/take.js'
import { problemOf } from './problem.js'

const event = (name: string, data: object): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`

/**
 * Opens with the second step, or with the first comment: until then an end that comes before anything was done, as with a module
 * that is not held, is answered like one without a stream.
 */
export class TakeInStream {
  #first: StepDone | undefined
  #isOpen = false
  #commenting: NodeJS.Timeout

  constructor (private readonly reply: FastifyReply) {
    this.#commenting = setInterval(() => this.#write(':\n\n'), limits.commentMs)
    // A client that goes away stops the stream, not the run.
    reply.raw.on('close', () => clearInterval(this.#commenting))
  }

  get isOpen (): boolean { return this.#isOpen }

  step (step: StepDone): void {
    if (!this.#isOpen && !this.#first) this.#first = step
    else this.#write(event('step', step))
  }

  /** Ends with the answer that a POST without events would have had. */
  done (result: TakeInResult): void { this.#end(event('done', result)) }

  /** Ends with the problem that it would have had. */
  failed (error: MeshError): void { this.#end(event('failed', problemOf(error))) }

  /** Gives it up where it did not open: something else is answered. */
  close (): void { clearInterval(this.#commenting) }

  #write (text: string): void {
    const { reply } = this
    const { raw } = reply
    if (!this.#isOpen) {
      this.#isOpen = true
      reply.hijack()
      raw.writeHead(200, {
        ...reply.getHeaders() as OutgoingHttpHeaders,
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-store',
        // nginx and its kin would hold events back.
        'x-accel-buffering': 'no'
      })
      if (this.#first) raw.write(event('step', this.#first))
    }
    if (!raw.destroyed) raw.write(text)
    this.#commenting.refresh()
  }

  #end (text: string): void {
    this.#write(text)
    this.close()
    this.reply.raw.end()
  }
}
