/**
 * What a GET is measured against, in a process of its own: Fastify with logging off and one route with a response schema that
 * answers a constant (`/bare`), or asks the provisioner over the bus for each GET (`/bus`).
 */
import type { AddressInfo } from 'node:net'
import Fastify from 'fastify'
import { connect } from 'nats'
import { act } from '../child.js'

interface Given { kind: 'bare' | 'bus', url: string, subject: string, value: Record<string, string> }

const commands = {
  async listen ({ kind, url, subject, value }: Given): Promise<number> {
    const app = Fastify({ logger: false })
    if (kind === 'bare') {
      const properties = Object.fromEntries(Object.keys(value).map((key) => [key, { type: 'string' }]))
      app.get('/bare', { schema: { response: { 200: { type: 'object', properties } } } }, async () => value)
    } else {
      const nc = await connect({ servers: url })
      const ask = JSON.stringify({ kind: 'config', key: 'value' })
      app.get('/bus', async (_request, reply) => {
        const { data } = await nc.request(subject, ask, { timeout: 2000 })
        return reply.type('application/json; charset=utf-8').send(data)
      })
    }
    await app.listen({ host: '127.0.0.1', port: 0 })
    return (app.server.address() as AddressInfo).port
  }
}

export type YardstickCommands = typeof commands
act(commands)
