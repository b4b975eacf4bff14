/** A small mesh in memory, what may happen to it, and whether what stands is whole: for tests of take-ins without a bus. */
import { Applied } from '../../src/core/take-in/applied.js'
import { HolderRuns } from '../../src/core/take-in/holder-runs.js'
import { liveSteps } from '../../src/core/take-in/live-steps.js'
import { take } from '../../src/core/take-in/take.js'
import { bucketNames, type MakeCredential } from '../../src/core/ports.js'
import type { Composition, Grant } from '../../src/schemas/composition.js'
import { commitOf, fp, sampleManifest } from './bus/buckets.js'
import { MemoryStore } from './memory-store.js'

/** A clock that is a millisecond later each time it is asked. */
export const ticking = () => {
  let at = 0
  return () => at++
}

/** The last of a mesh's keys, for comparing two that were reached by different ways. */
type State = Record<string, unknown>

let users = 0
/** Another user each time; nothing is sealed. */
export const newUser: MakeCredential = (to) => {
  const letters = (++users).toString().padStart(5, '0').replace(/\d/g, (digit) => 'ABCDEFGHIJ'[Number(digit)] ?? 'A')
  return { user: `U${letters.padEnd(55, 'A')}`, sealed: 's', by: `X${'B'.repeat(55)}`, to }
}

/** Take-ins on buckets in memory, as one gateway runs them. */
export function inMemory (store: MemoryStore) {
  const applied: string[] = []
  const once = (module: string) => take(module, liveSteps({
    store,
    makeCredential: newUser,
    patience: { now: Date.now, random: () => 0, pause: async () => {} },
    holder: new HolderRuns(newUser),
    applied: new Applied({ applied: async (server, { revision }) => { applied.push(`${server} ${revision}`) } })
  }), { now: ticking() })
  return { applied, take: once }
}

export const curve = (letter: string) => `X${letter.repeat(55)}`

/** Two nodes with a module on both, one bound to it, and the broker module on a third, all built; nothing is taken in but the broker. */
export async function standingMesh (): Promise<MemoryStore> {
  const store = new MemoryStore()
  for (const [node, letter] of [['node-a', 'A'], ['node-b', 'B'], ['node-c', 'C']] as const) await store.put('inventory', `node.${node}`, { node, curve: curve(letter) })
  const modules: Array<[string, string[], object]> = [
    ['bus', ['node-c'], {}],
    ['m1', ['node-a', 'node-b'], { offers: { url: 'one' }, permissions: { publish: ['orders.>'] } }],
    ['m2', ['node-b'], { bound: { db: {} } }]
  ]
  for (const [module, nodes, more] of modules) {
    await store.put('inventory', `module.${module}`, { module })
    await store.put('inventory', `assignment.${module}`, { nodes })
    await store.put('trunk', module, { fp: fp('a'), commit: commitOf('a') })
    await store.put('builds', `done.${module}.${fp('a')}`, { fp: fp('a'), commit: commitOf('a'), manifest: sampleManifest(module, more) })
  }
  await store.put('inventory', 'binding.m2', { db: { module: 'm1', offer: 'url' } })
  await store.put('inventory', 'seat.broker', { module: 'bus', node: 'node-c' })
  return store
}

/** All that stands, without what differs between two ways to the same state: users' keys and revisions. */
export async function stateOf (store: MemoryStore): Promise<State> {
  const state: State = {}
  for (const bucket of bucketNames) {
    if (bucket === 'takeins') continue
    for (const filter of ['*', '*.*', '*.*.*']) {
      for (const [key, { deleted, text }] of await store.readAll(bucket, filter)) {
        if (deleted) continue
        const plain = text.replace(/"U[A-Z]{55}"/g, '"U"')
        state[`${bucket} ${key}`] = JSON.parse(plain.replace(/"\d+\.\d+"/g, '"r"'))
      }
    }
  }
  return state
}

/** Each grant names revisions that carry its fingerprint, and each user that stands is in the list, no other. */
export async function isWhole (store: MemoryStore): Promise<string[]> {
  const wrong: string[] = []
  for (const [key, { deleted, text }] of await store.readAll('grants', '*.*')) {
    if (deleted) continue
    const { module, nodes, fp: granted } = JSON.parse(text) as Grant
    for (const [node, revision] of Object.entries(nodes)) {
      const carried = store.history('compositions', `${node}.${module}`).find((entry) => revision.endsWith(`.${entry.revision}`))
      if (!carried || (JSON.parse(carried.text) as Composition).fp !== granted) wrong.push(`grant ${key} speaks of ${node} ${revision}`)
    }
  }
  const stands = [...(await store.readAll('compositions', '*.*')).values()].filter(({ deleted }) => !deleted).map(({ text }) => JSON.parse(text) as Composition)
  const listed = stands.find(({ users }) => users)?.users?.flatMap(({ module, users }) => users.map(({ node, user }) => `${node}.${module} ${user}`)) ?? []
  const holding = stands.map(({ node, module, credential }) => `${node}.${module} ${credential.user}`)
  if (listed.sort().join() !== holding.sort().join()) wrong.push(`users ${listed.join()} but ${holding.join()}`)
  return wrong
}

/** What an operator, the builder and the indexer may do to m1 at any time; each brings one key to one state. */
export const deeds: Record<string, (store: MemoryStore) => Promise<unknown>> = {
  buildA: (store) => store.put('trunk', 'm1', { fp: fp('a'), commit: commitOf('a') }),
  buildB: async (store) => {
    await store.put('builds', `done.m1.${fp('b')}`, { fp: fp('b'), commit: commitOf('b'), manifest: sampleManifest('m1', { offers: { url: 'two' } }) })
    await store.put('trunk', 'm1', { fp: fp('b'), commit: commitOf('b') })
  },
  onBoth: (store) => store.put('inventory', 'assignment.m1', { nodes: ['node-a', 'node-b'] }),
  onOne: (store) => store.put('inventory', 'assignment.m1', { nodes: ['node-b'] }),
  onHolder: (store) => store.put('inventory', 'assignment.m1', { nodes: ['node-a', 'node-c'] }),
  nowhere: (store) => store.put('inventory', 'assignment.m1', { nodes: [] }),
  set: (store) => store.put('settings', 'm1', { port: 1 }),
  unset: (store) => store.put('settings', 'm1', {}),
  newKey: (store) => store.put('inventory', 'node.node-b', { node: 'node-b', curve: curve('D') })
}
