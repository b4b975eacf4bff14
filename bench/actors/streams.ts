/** Thousands of clients of event streams, in a process of their own. */
import { connect } from 'node:net'
import { act } from '../child.js'

/** So many connections at a time: more would overrun the listener's backlog. */
const opening = 100

let failure: Error | undefined

/** Resolves when the stream's first event is there; what comes after it is read and not looked at. */
const open = (port: number, request: string): Promise<void> => new Promise((resolve, reject) => {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  const fail = (error: Error): void => {
    failure ??= error
    reject(error)
  }
  let begun = ''
  const look = (bytes: Buffer): void => {
    begun += bytes.toString('latin1')
    if (!begun.startsWith('HTTP/1.1 200')) return fail(new Error(`a stream was answered with ${begun.slice(0, 300)}`))
    if (!begun.includes('event: value')) return
    socket.off('data', look).resume()
    resolve()
  }
  socket.on('error', fail)
  socket.on('data', look)
  socket.on('close', () => fail(new Error('a stream was closed')))
  socket.write(request)
})

const commands = {
  /** Opens so many more; resolves when all of them stand, those from before too. */
  async open ({ port, request, count }: { port: number, request: string, count: number }): Promise<void> {
    let left = count
    await Promise.all(Array.from({ length: opening }, async () => { while (left-- > 0) await open(port, request) }))
    if (failure) throw failure
  }
}

export type StreamsCommands = typeof commands
act(commands)
