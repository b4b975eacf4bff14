/** Core's Store port: one set of promises, kept by the buckets on a real bus and by those in memory. */
import t, { type Test } from 'tap'
import { NatsStore } from '../src/nats/buckets.js'
import type { BucketName, Store } from '../src/core/ports.js'
import { mesh } from './support/bus/buckets.js'
import { client, decode } from './support/bus/client.js'
import { natsServer, type NatsServer } from './support/bus/nats-server.js'
import { proxy, type Proxy } from './support/bus/proxy.js'
import { stored } from './support/bus/stored.js'
import { MemoryStore } from './support/memory-store.js'
import { eventually } from './support/until.js'

/** The store, and a look behind it: the texts that are still stored under a key, and a bucket deleted and made anew. */
interface Subject { store: Store, stored (bucket: BucketName, key: string): Promise<string[]>, remake (bucket: BucketName): Promise<void> }

/** What every implementation must pass. */
async function keepsItsPromises (t: Test, { store, stored, remake }: Subject): Promise<void> {
  await t.test('a key that was never written is none, and its first write expects 0', async (t) => {
    t.equal(await store.read('inventory', 'module.m1'), undefined)
    const revision = await store.write('inventory', 'module.m1', '{"a":1}', 0)
    t.same(await store.read('inventory', 'module.m1'), { key: 'module.m1', revision, deleted: false, text: '{"a":1}' })
    await t.rejects(store.write('inventory', 'module.m1', '{"a":2}', 0), { name: 'Conflict', message: 'inventory module.m1 was written by another' })
  })

  await t.test('a write is taken where the revision still stands, and else loses and changes nothing', async (t) => {
    const first = await store.write('settings', 'm1', '1', 0)
    const second = await store.write('settings', 'm1', '2', first)
    t.ok(second > first)
    await t.rejects(store.write('settings', 'm1', '3', first), { name: 'Conflict' })
    await t.rejects(store.purge('settings', 'm1', first), { name: 'Conflict' })
    t.match(await store.read('settings', 'm1'), { revision: second, text: '2' })
    const racing = await Promise.allSettled(['a', 'b', 'c', 'd'].map((text) => store.write('settings', 'm1', text, second)))
    t.equal(racing.filter(({ status }) => status === 'fulfilled').length, 1, 'of many at once one wins')
    t.same(racing.flatMap((one) => one.status === 'rejected' ? [(one.reason as Error).name] : []), ['Conflict', 'Conflict', 'Conflict'])
    await store.write('settings', 'm2', 'other', 0)
    t.ok(await store.write('settings', 'm1', 'e', (await store.read('settings', 'm1'))?.revision ?? 0), 'the writes of other keys do not count')
  })

  await t.test('a purge leaves a marker and nothing of what was written before it', async (t) => {
    let revision = 0
    for (const text of ['secret-1', 'secret-2', 'secret-3']) revision = await store.write('compositions', 'node-a.m1', text, revision)
    t.same(await stored('compositions', 'node-a.m1'), ['secret-1', 'secret-2', 'secret-3'])
    const marker = await store.purge('compositions', 'node-a.m1', revision)
    t.same(await store.read('compositions', 'node-a.m1'), { key: 'node-a.m1', revision: marker, deleted: true, text: '' })
    t.same(await stored('compositions', 'node-a.m1'), [''], 'not even in the history')
    await t.rejects(store.write('compositions', 'node-a.m1', 'again', 0), { name: 'Conflict' }, 'the marker is a write, too')
    t.ok(await store.write('compositions', 'node-a.m1', 'again', marker) > marker)
  })

  await t.test('what is erased leaves no trace, up to the revision that was named and no further', async (t) => {
    let revision = 0
    for (const text of ['1', '2', '3']) revision = await store.write('compositions', 'node-a.m2', text, revision)
    const marker = await store.purge('compositions', 'node-a.m2', revision)
    const after = await store.write('compositions', 'node-a.m2', '4', marker)
    await store.erase('compositions', 'node-a.m2', marker)
    t.same(await stored('compositions', 'node-a.m2'), ['4'], 'the marker went, and not what came after it')
    await store.erase('compositions', 'node-a.m2', after)
    await store.erase('compositions', 'node-a.m2', after)
    t.equal(await store.read('compositions', 'node-a.m2'), undefined)
    t.notOk((await store.readAll('compositions', '*.*')).has('node-a.m2'))
    t.ok(await store.write('compositions', 'node-a.m2', '5', 0), 'as if it had never been')
  })

  await t.test('all keys of a filter come with their last entry, markers among them', async (t) => {
    t.same([...(await store.readAll('grants', '*.*')).keys()], [])
    for (const key of ['m2.y', 'm1.b', 'm1.a', 'm3.x', 'm1']) await store.write('grants', key, key, 0)
    const gone = await store.purge('grants', 'm1.b', (await store.read('grants', 'm1.b'))?.revision ?? 0)
    const found = await store.readAll('grants', 'm1.*')
    t.same([...found.keys()].sort(), ['m1.a', 'm1.b'])
    t.match(found.get('m1.a'), { key: 'm1.a', deleted: false, text: 'm1.a' })
    t.same(found.get('m1.b'), { key: 'm1.b', revision: gone, deleted: true, text: '' })
    t.same([...(await store.readAll('grants', '*.x')).keys()], ['m3.x'])
    t.same([...(await store.readAll('grants', '*')).keys()], ['m1'])
  })

  await t.test('any text comes back as it was, an empty one is no marker', async (t) => {
    let revision = 0
    for (const text of ['', '{"é":"日本 😀"}', ' \n', 'x'.repeat(200_000)]) {
      revision = await store.write('trunk', 'm1', text, revision)
      t.same(await store.read('trunk', 'm1'), { key: 'm1', revision, deleted: false, text })
    }
  })

  await t.test('a bucket made anew has a later epoch and none of its keys', async (t) => {
    const before = await store.epoch('trunk')
    t.equal(await store.epoch('trunk'), before)
    await remake('trunk')
    t.ok(await store.epoch('trunk') > before)
    t.equal(await store.read('trunk', 'm1'), undefined)
    t.ok(await store.write('trunk', 'm1', 'x', 0))
  })
}

t.test('the buckets in memory', (t) => {
  const store = new MemoryStore()
  return keepsItsPromises(t, {
    store,
    stored: async (bucket, key) => store.history(bucket, key).map(({ text }) => text),
    remake: async (bucket) => store.remake(bucket)
  })
})

t.test('the buckets on a bus', async (t) => {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const buckets = await mesh(nc)
  await keepsItsPromises(t, {
    store: new NatsStore(nc, 'mesh_'),
    stored: (bucket, key) => stored(buckets, bucket, key),
    remake: async (bucket) => {
      await buckets.jsm.streams.delete(`KV_mesh_${bucket}`)
      await mesh(nc)
    }
  })
})

/** A store whose way to the bus can be cut, beside one whose cannot. */
async function cuttable (t: Test, server: NatsServer) {
  const between = await proxy(t, server.port)
  return { between, store: new NatsStore(await client(t, between.url), 'mesh_') }
}

t.test('a write whose acknowledgement is lost is read again before it counts as failed', async (t) => {
  const server = await natsServer(t)
  const direct = await mesh(await client(t, server.url))
  const [taken, lost, overtaken, purged] = await Promise.all([1, 2, 3, 4].map(() => cuttable(t, server)))
  if (!taken || !lost || !overtaken || !purged) throw new Error('four stores')
  const stands = (key: string, text: string) => eventually(`${key} stands at ${text}`, async () => {
    const entry = await direct.kv.settings.get(key)
    return entry && decode(entry.value) === text
  })
  // A first read, so that nothing but the write goes the way that is cut.
  await Promise.all([taken, lost, overtaken, purged].map(({ store }) => store.read('settings', 'm0')))
  const revisionOf = async (key: string) => (await direct.kv.settings.get(key))?.revision
  const part = ({ between }: { between: Proxy }) => {
    between.cut()
    between.mend()
  }

  const wasTaken = async () => {
    taken.between.holdDown = true
    const writing = taken.store.write('settings', 'm1', 'mine', 0)
    await stands('m1', 'mine')
    part(taken)
    t.equal(await writing, await revisionOf('m1'), 'it was taken: the revision that stands is the answer')
  }
  const wasNotTaken = async () => {
    const sent = lost.between.bytesUp
    lost.between.holdUp = true
    const writing = t.rejects(lost.store.write('settings', 'm2', 'mine', 0), { name: 'Transient', message: /^writing settings m2: / },
      'it was not taken: a fault that may pass')
    await eventually('the write is on its way', () => lost.between.bytesUp > sent)
    part(lost)
    await writing
    t.equal(await direct.entry('settings', 'm2'), undefined)
  }
  const wasOvertaken = async () => {
    overtaken.between.holdDown = true
    const writing = t.rejects(overtaken.store.write('settings', 'm3', 'mine', 0), { name: 'Conflict' },
      'another came after it: a lost race, as it is without a cut')
    await stands('m3', 'mine')
    await direct.put('settings', 'm3', 'theirs')
    part(overtaken)
    await writing
  }
  const wasPurged = async () => {
    const revision = await direct.put('settings', 'm4', 'x')
    purged.between.holdDown = true
    const purging = purged.store.purge('settings', 'm4', revision)
    await eventually('the marker stands', async () => (await direct.kv.settings.get('m4'))?.operation === 'PURGE')
    part(purged)
    t.equal(await purging, await revisionOf('m4'), 'a purge, likewise')
  }
  // Each waits for a call of its own to be given up.
  await Promise.all([wasTaken(), wasNotTaken(), wasOvertaken(), wasPurged()])
})
