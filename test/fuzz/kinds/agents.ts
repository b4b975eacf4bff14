/** The agents on the nodes: what stands in the compositions that they follow, and what they are asked. */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { createUser } from 'nkeys.js'
import { ProvisionerState } from '../../../src/agents/provisioner-state.js'
import { startProvisioner } from '../../../src/agents/provisioner.js'
import { renderUserList } from '../../../src/agents/user-list.js'
import { findNatsServer } from '../../../src/dev/nats-binary.js'
import { commitOf, fp } from '../../support/bus/buckets.js'
import { temporaryFolder } from '../../support/machine.js'
import { atEnd } from '../../support/owner.js'
import { eventually } from '../../support/until.js'
import { kind } from '../kind.js'
import { anyJson, anyText, documentBytes, mutatedJson } from '../mutate.js'
import { boundMs, valueMark, type Stage } from '../stage.js'

// Made once for all seeds: what is drawn is whose they are.
const users = Array.from({ length: 4 }, () => createUser().getPublicKey())
const subject = fc.oneof(fc.constantFrom('orders.>', 'a.*.b', 'a', 'a.b', '*.x', 'é.日本', "it's", 'a#b', 'a//b', '%s', 'include', 'true', '1', '\\', 'a"b'), anyText)
const subjects = fc.array(subject, { maxLength: 4 })
const row = fc.record({
  module: fc.oneof(fc.constantFrom('m1', 'm2', 'x'), anyText),
  publish: subjects,
  subscribe: subjects,
  users: fc.array(fc.record({ node: fc.constantFrom('node-a', 'node-b'), user: fc.oneof(fc.constantFrom(...users), anyText) }), { maxLength: 2 })
})
const oddRow = mutatedJson(row, anyJson(subject))
const anyRow = fc.oneof({ weight: 3, arbitrary: row }, { weight: 2, arbitrary: oddRow }, { weight: 1, arbitrary: anyJson() })
// As they come out of JSON, own members of any name among them.
const rows = fc.array(anyRow, { maxLength: 6 }).map((all) => JSON.parse(JSON.stringify(all)) as unknown[])

const curve = `X${'A'.repeat(55)}`
const composition = {
  node: 'a-node',
  module: 'p1',
  fp: fp('a'),
  commit: commitOf('a'),
  config: { port: 8080, name: valueMark },
  bound: { db: valueMark },
  secrets: [],
  credential: { user: `U${'A'.repeat(55)}`, sealed: 'AA', by: curve, to: curve }
}
const ask = documentBytes(fc.constantFrom({ kind: 'config', key: 'port' }, { kind: 'bound', key: 'db' }, { kind: 'secret', key: 'x' }))

/** How often nats-server itself is asked: it is a process of its own. */
const oneInFive = fc.integer({ min: 0, max: 4 }).map((one) => one === 0)

interface Drawn { rows: unknown[], document: Buffer, ask: Buffer, toServer: boolean }

interface Made { folder: string }
const made = new WeakMap<Stage, Promise<Made>>()
const quiet = { debug () {}, info () {}, warn () {}, error () {} }

async function make (stage: Stage): Promise<Made> {
  const agent = startProvisioner(stage.nc, { prefix: 'mesh_', node: 'a-node', log: quiet })
  atEnd(stage.owner, () => agent.stop())
  await agent.ready
  const folder = temporaryFolder(stage.owner, 'users')
  writeFileSync(join(folder, 'main.conf'), 'port: 4222\nauthorization { include "users.conf" }\n')
  return { folder }
}

const whereAsked = 'mesh.provision.a-node.p1.get'

/** nats-server itself reads the list. */
function assertTaken (folder: string, list: string): void {
  writeFileSync(join(folder, 'users.conf'), list)
  try {
    execFileSync(findNatsServer() ?? '', ['-t', '-c', join(folder, 'main.conf')], { stdio: 'pipe' })
  } catch (error) {
    throw new Error(`nats-server does not take the list: ${String((error as { stderr?: Buffer }).stderr)}\n${list}`)
  }
}

export const agentsKind = kind<Drawn>({
  promise: 'whatever a composition holds, nats-server takes the list of users, and the provisioner lives and answers what is good',
  runs: 100,
  input: fc.record({ rows, document: documentBytes(fc.constant(composition)), ask, toServer: oneInFive }),
  async attempt (stage, { rows, document, ask, toServer }) {
    let promise = made.get(stage)
    if (!promise) made.set(stage, promise = make(stage))
    const { folder } = await promise
    const { text, dropped } = renderUserList('', rows)
    if (toServer) assertTaken(folder, text)
    for (const { why } of dropped) if (why === '' || why.includes('\n')) throw new Error(`a row is left out without a sentence: ${why}`)

    const state = new ProvisionerState('a-node')
    state.anew(1)
    state.entry({ key: 'a-node.p1', revision: 1, deleted: false, text: document.toString() })
    state.ready()
    const said = state.get('p1', ask.toString())
    if ('reason' in said && said.reason.includes(valueMark)) throw new Error(`a value in a reason: ${said.reason}`)

    const revision = await stage.mesh.kv.compositions.put('a-node.p1', document)
    const reply = await stage.nc.request(whereAsked, ask, { timeout: boundMs })
    const code = reply.headers?.get('Nats-Service-Error-Code') ?? ''
    if (code === '' && reply.data.length === 0) throw new Error('a reply that is neither a value nor an error')
    const good = await stage.mesh.put('compositions', 'a-node.p1', { ...composition, config: { port: revision } })
    const answered = await eventually('the provisioner answers the next good composition', async () => {
      const { data, headers } = await stage.nc.request(whereAsked, '{"kind":"config","key":"port"}', { timeout: boundMs })
      return headers?.get('Mesh-Revision').endsWith(`.${good}`) && Buffer.from(data).toString()
    }, boundMs)
    if (answered !== String(revision)) throw new Error(`it is answered ${answered}, not ${revision}`)
    return `${code || 'value'}, ${dropped.length === 0 ? 'all rows' : 'rows left out'}`
  }
})
