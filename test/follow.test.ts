/** Following a bucket hands everything, also where the server leaves messages out of a consumer. */
import t, { type Test } from 'tap'
import { follow } from '../src/nats/follow.js'
import { NatsStore } from '../src/nats/buckets.js'
import { mesh } from './support/bus/buckets.js'
import { copyOf, putBack } from './support/bus/copy.js'
import { client } from './support/bus/client.js'
import { natsServer } from './support/bus/nats-server.js'
import { stored } from './support/bus/stored.js'
import { eventually } from './support/until.js'

const rounds = 6
const abreast = 20

/** What followers of a node's keys, and of all, were handed: the last of each key, and whether any key went back. */
function listening (t: Test, nc: Awaited<ReturnType<typeof client>>) {
  const heard = new Map<string, { revision: number, deleted: boolean }>()
  const back: string[] = []
  const ready = new Promise<void>((resolve) => {
    let left = 2
    for (const [name, filter] of [['all', '*.*'], ['node', 'n1.*']] as const) {
      const following = follow(nc, { prefix: 'mesh_', bucket: 'compositions', filter }, {
        anew () {},
        ready: () => { if (--left === 0) resolve() },
        entry ({ key, revision, deleted }) {
          const before = heard.get(`${name} ${key}`)
          if (before && before.revision >= revision) back.push(`${name} ${key}: ${revision} after ${before.revision}`)
          heard.set(`${name} ${key}`, { revision, deleted })
        }
      })
      t.teardown(() => following.stop())
    }
  })
  const missing = (keys: Iterable<[string, { revision: number, deleted: boolean }]>): string[] => [...keys].flatMap(([key, { revision, deleted }]) =>
    (key.startsWith('n1.') ? ['all', 'node'] : ['all']).filter((name) => {
      const last = heard.get(`${name} ${key}`)
      return last?.revision !== revision || last.deleted !== deleted
    }).map((name) => `${name} ${key}`))
  return { ready, back, missing }
}

t.test('keys are removed while others are written: a follower hears each marker and each write, and nothing removed lingers', async (t) => {
  const server = await natsServer(t)
  const buckets = await mesh(await client(t, server.url))
  const { ready, back, missing } = listening(t, await client(t, server.url))
  await ready
  const stores = await Promise.all([1, 2].map(async () => new NatsStore(await client(t, server.url), 'mesh_')))
  const stands = new Map<string, { revision: number, deleted: boolean }>()
  for (let round = 0; round < rounds; round++) {
    await Promise.all(Array.from({ length: abreast }, async (_, i) => {
      const store = stores[i % 2] as NatsStore
      const [gone, kept] = [`n1.gone-${round}-${i}`, `n${1 + i % 2}.kept-${round}-${i}`]
      const [first, revision] = await Promise.all([store.write('compositions', gone, '"old"', 0), store.write('compositions', kept, '{}', 0)])
      stands.set(kept, { revision, deleted: false })
      const second = await store.write('compositions', gone, '"older"', first)
      stands.set(gone, { revision: await store.purge('compositions', gone, second), deleted: true })
    }))
  }
  // Well before anything is read a second time.
  await eventually('all is heard', () => missing(stands).length === 0, 3000)
  t.same(back, [])
  for (const key of ['n1.gone-0-0', `n1.gone-${rounds - 1}-${abreast - 1}`]) t.same(await stored(buckets, 'compositions', key), [''], key)
})

t.test('others purge keys in the way that makes a server leave messages out: what was left out is handed late, and no key goes back', async (t) => {
  const server = await natsServer(t)
  const buckets = await mesh(await client(t, server.url))
  const { ready, back, missing } = listening(t, await client(t, server.url))
  await ready
  const others = await Promise.all([1, 2].map(async () => mesh(await client(t, server.url), { create: false })))
  const stands = new Map<string, { revision: number, deleted: boolean }>()
  for (let round = 0; round < rounds; round++) {
    await Promise.all(Array.from({ length: abreast }, async (_, i) => {
      const { kv } = others[i % 2] ?? buckets
      const [gone, kept] = [`n1.gone-${round}-${i}`, `n${1 + i % 2}.kept-${round}-${i}`]
      const [, revision] = await Promise.all([kv.compositions.put(gone, '"old"'), kv.compositions.put(kept, '{}')])
      stands.set(kept, { revision, deleted: false })
      await kv.compositions.purge(gone)
    }))
  }
  for (const key of [...stands.keys()].map((kept) => kept.replace(/^n\d\.kept/, 'n1.gone'))) {
    const { revision = 0, operation } = await buckets.kv.compositions.get(key) ?? {}
    t.equal(operation, 'PURGE', key)
    stands.set(key, { revision, deleted: true })
  }
  await eventually('all is heard', () => missing(stands).length === 0, 30_000)
  t.same(back, [])
})

t.test('a bucket that was put back from an older copy, and written on beyond what was handed: followers start anew; so when it was emptied', async (t) => {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const buckets = await mesh(nc)
  const heard = new Map<string, string>()
  let begun = 0
  const following = follow(await client(t, server.url), { prefix: 'mesh_', bucket: 'compositions', filter: 'n1.*' }, {
    anew () {
      begun++
      heard.clear()
    },
    ready () {},
    entry ({ key, text }) { heard.set(key, text) }
  })
  t.teardown(() => following.stop())
  await buckets.put('compositions', 'n1.m1', '1')
  const copy = await copyOf(nc, 'KV_mesh_compositions')
  for (const [key, text] of [['n1.m1', '2'], ['n1.m2', '3'], ['n2.m1', '4']] as const) await buckets.put('compositions', key, text)
  await eventually('all is heard', () => heard.get('n1.m1') === '2' && heard.get('n1.m2') === '3')
  t.equal(begun, 1)

  await putBack(nc, copy)
  for (let i = 0; i < 9; i++) await buckets.put('compositions', `n2.m${i}`, 'other')
  await eventually('what stands now is heard', () => heard.get('n1.m1') === '1' && !heard.has('n1.m2'), 15_000)
  await buckets.put('compositions', 'n1.m3', '5')
  await eventually('and what is written then', () => heard.get('n1.m3') === '5')
  t.equal(begun, 2, 'once')

  await buckets.jsm.streams.purge('KV_mesh_compositions')
  await eventually('nothing stands any more', () => begun === 3 && heard.size === 0, 15_000)
  await buckets.put('compositions', 'n1.m4', '6')
  await eventually('it is followed on', () => heard.get('n1.m4') === '6')
  t.equal(begun, 3)
})
