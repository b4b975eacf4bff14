/** A GET beside the same value read from etcd's JSON gateway, where there is an etcd: a peer to look at, no bar. */
import { existsSync, mkdtempSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { freePort } from '../../src/dev/ports.js'
import type { Measured } from '../bars.js'
import { end, run } from '../child.js'
import { getRequest, value, type Stage } from '../stage.js'
import { compared, inRounds, type Target } from './closed-loop.js'

const module = 'reader'
const key = 'value'

const onPath = (program: string): string | undefined =>
  (process.env.PATH ?? '').split(delimiter).filter(Boolean).map((folder) => join(folder, program)).find((file) => existsSync(file))

/** An etcd of one member that holds the value, and a read that it answers from its own copy, as the gateway does from its view. */
async function startEtcd (program: string, folder: string): Promise<{ target: Target, version: string, stop: () => Promise<void> }> {
  const [port, peerPort] = [await freePort(), await freePort()]
  const [url, peerUrl] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${peerPort}`]
  const child = run(program, [
    '--data-dir', mkdtempSync(join(folder, 'etcd-')), '--logger', 'zap', '--log-outputs', 'stdout',
    '--listen-client-urls', url, '--advertise-client-urls', url,
    '--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl, '--initial-cluster', `default=${peerUrl}`
  ])
  const base64 = (text: string): string => Buffer.from(text).toString('base64')
  const put = JSON.stringify({ key: base64(key), value: base64(JSON.stringify(value)) })
  const held = (): Promise<boolean> => fetch(`${url}/v3/kv/put`, { method: 'POST', body: put }).then(({ ok }) => ok, () => false)
  for (let tries = 0; !await held(); tries++) {
    if (child.exitCode !== null || tries === 200) throw new Error('etcd did not take a value within 10 s')
    await pause(50)
  }
  const { etcdserver } = await fetch(`${url}/version`).then((answer) => answer.json()) as { etcdserver: string }
  const range = JSON.stringify({ key: base64(key), serializable: true })
  const request = `POST /v3/kv/range HTTP/1.1\r\nHost: bench.mesh.local\r\nContent-Type: application/json\r\nContent-Length: ${range.length}\r\n\r\n${range}`
  return { target: { port, pid: child.pid as number, request, status: 200 }, version: etcdserver, stop: () => end(child) }
}

export async function etcd (stage: Stage): Promise<Measured[]> {
  const { say } = stage.options
  if (onPath('resgate')) say('resgate is on the PATH, but not compared: it speaks another protocol')
  const program = onPath('etcd')
  if (program === undefined) {
    say('etcd is not on the PATH: there is no figure beside it (Debian: apt-get install etcd-server)')
    return []
  }
  await stage.provisioner.call('set', { module, key, text: JSON.stringify(value) })
  const authorization = `Bearer ${await stage.token({ role: 'module', name: module })}`
  let version = ''
  const results = await inRounds(stage, async () => {
    const [gateway, peer] = await Promise.all([stage.gateway(), startEtcd(program, stage.folder)])
    version = peer.version
    const { port, pid } = gateway
    const ours = { port, pid, request: getRequest(`/provision/config/${key}`, { Authorization: authorization }), status: 200 }
    return { targets: { ours, peer: peer.target }, end: async () => { await Promise.all([gateway.stop(), peer.stop()]) } }
  })
  const figure = compared('etcd', results.ours, results.peer)
  return [{ ...figure, note: `${figure.note}; etcd ${version}, one member, serializable reads, no access control` }]
}
