/** Requests that come before the answers to those ahead of them on the connection were read. */
import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { limits } from '../core/limits.js'

/** Of one connection: requests that are begun though it is not their turn to be answered, and those that wait for it. */
interface Ahead { begun: number, waiting: number }

/**
 * Node hands on every request of a read, up to a thousand and more, and keeps each answer in memory until its turn comes. Without a bound a
 * client that sends 64 KB and reads nothing would have the gateway make, and hold, a hundred megabytes. So only a few are begun ahead of
 * their turn; the others wait for it, in their order. Many more than anybody sends in earnest end the connection.
 */
export default fp(async (app: FastifyInstance) => {
  const connections = new WeakMap<Socket, Ahead>()
  app.addHook('onRequest', (request, reply, done) => {
    const { raw } = reply
    // It has its connection once it is its turn: what nearly all requests have at once.
    if (raw.socket) return done()
    const { socket } = request.raw
    let ahead = connections.get(socket)
    if (!ahead) connections.set(socket, ahead = { begun: 0, waiting: 0 })
    const of = ahead
    if (of.waiting === 0 && of.begun < limits.answersAhead) {
      of.begun++
      raw.once('socket', () => { of.begun-- })
      return done()
    }
    if (++of.waiting > limits.requestsWaiting) {
      socket.destroy()
      return
    }
    raw.once('socket', () => {
      of.waiting--
      done()
    })
  })
}, { name: 'pipeline' })
