/** What a GET costs: from the view, not modified, and past the view. Closed loop, one server process at a time. */
import type { YardstickCommands } from '../actors/yardstick.js'
import type { Measured } from '../bars.js'
import { Actor } from '../child.js'
import { getRequest, node, value, type Stage } from '../stage.js'
import { compared, inRounds, type Servers, type Target } from './closed-loop.js'

const module = 'reader'
const key = 'value'
const path = `/provision/config/${key}`

async function etagOf (port: number, authorization: string): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization } })
  await response.arrayBuffer()
  const etag = response.headers.get('etag')
  if (response.status !== 200 || etag === null) throw new Error(`the first GET was answered with ${response.status}`)
  return etag
}

export async function get (stage: Stage): Promise<Measured[]> {
  await stage.provisioner.call('set', { module, key, text: JSON.stringify(value) })
  const results = await inRounds(stage, () => servers(stage))
  return [
    compared('get', results.get, results.bare),
    compared('notModified', results.notModified, results.get),
    compared('noCache', results.noCache, results.bus)
  ]
}

async function servers (stage: Stage): Promise<Servers<'get' | 'bare' | 'notModified' | 'noCache' | 'bus'>> {
  const [gateway, bare, bus] = await Promise.all([
    stage.gateway(), Actor.start<YardstickCommands>('yardstick'), Actor.start<YardstickCommands>('yardstick')
  ])
  const given = { url: stage.url, subject: `mesh.provision.${node}.${module}.get`, value }
  const [barePort, busPort] = await Promise.all([bare.call('listen', { kind: 'bare', ...given }), bus.call('listen', { kind: 'bus', ...given })])
  const authorization = `Bearer ${await stage.token({ role: 'module', name: module })}`
  const etag = await etagOf(gateway.port, authorization)
  // The yardsticks get the same headers: reading them is the request's cost, not the gateway's.
  const ours = (status: number, headers: Record<string, string> = {}): Target =>
    ({ port: gateway.port, pid: gateway.pid, request: getRequest(path, { Authorization: authorization, ...headers }), status })
  const theirs = ({ pid }: { pid: number }, port: number, of: string): Target =>
    ({ port, pid, request: getRequest(of, { Authorization: authorization }), status: 200 })
  return {
    targets: {
      get: ours(200),
      bare: theirs(bare, barePort, '/bare'),
      notModified: ours(304, { 'If-None-Match': etag }),
      noCache: ours(200, { 'Cache-Control': 'no-cache' }),
      bus: theirs(bus, busPort, '/bus')
    },
    end: async () => { await Promise.all([gateway.stop(), bare.end(), bus.end()]) }
  }
}
