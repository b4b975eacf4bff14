/** The coherent view, with a clock held by hand: one ask for many readers, nothing old handed, never silently stale. */
import t from 'tap'
import { limits } from '../src/core/limits.js'
import { Fanout } from '../src/core/provision/fanout.js'
import { Gate } from '../src/core/provision/gate.js'
import { saidOf } from '../src/core/provision/said.js'
import { HandHeld, HandHeldWatch, named, textOf } from './support/hand-held.js'

const port = named('port')

t.test('one ask serves all who read, and the answer is served from memory until a word', async (t) => {
  const held = new HandHeld()
  const reads = Array.from({ length: 50 }, () => held.view.read(port))
  const watches = Array.from({ length: 50 }, () => held.watch('port'))
  await held.settle()
  held.only.value(1)
  t.same((await Promise.all(reads)).map(textOf), Array(50).fill('1'))
  t.same(watches.map(({ told }) => told), Array(50).fill(['1']))
  t.equal(textOf(await held.view.read(port)), '1')
  t.equal(held.view.peek(port) && textOf(held.view.peek(port)!), '1')
  t.equal(held.questions.length, 1)

  held.word('port', 2)
  t.equal(held.view.peek(port), undefined, 'a word puts the value in doubt at once')
  held.word('other', 3)
  held.word(undefined, 3, { kind: 'bound' })
  held.word('port', 3, { module: 'm2' })
  await held.settle()
  held.only.value(2, 3)
  await held.settle()
  t.same(watches.map(({ told }) => told.at(-1)), Array(50).fill('2'))
  t.equal(held.questions.length, 2, 'one ask a change, whoever watches')

  held.word(undefined, 4)
  await held.settle()
  held.only.value(2, 4)
  await held.settle()
  t.same(watches[0]?.told, ['1', '2'], 'the same thing twice in a row is never handed')
})

t.test('no-cache joins only an ask that begins after it', async (t) => {
  const held = new HandHeld()
  const plain = held.view.read(port)
  await held.settle()
  const [first] = held.open
  const fresh = [held.view.read(port, { noCache: true }), held.view.read(port, { noCache: true })]
  await held.settle()
  t.equal(held.questions.length, 1, 'it waits for the ask in flight to end')
  first?.value(1)
  t.equal(textOf(await plain), '1')
  await held.settle()
  held.only.value(2, 2)
  t.same((await Promise.all(fresh)).map(textOf), ['2', '2'])
  t.equal(held.questions.length, 2)
  const again = held.view.read(port, { noCache: true })
  await held.settle()
  held.only.value(3, 3)
  t.equal(textOf(await again), '3', 'it asks though the value is known')
})

t.test('a word during an ask: the answer goes to those who wait, is not kept, and one re-ask follows', async (t) => {
  const held = new HandHeld()
  const read = held.view.read(port)
  await held.settle()
  for (let i = 0; i < 20; i++) held.word('port', 5)
  const later = held.view.read(port)
  await held.settle()
  t.equal(held.questions.length, 1)
  held.only.value(1, 5)
  t.equal(textOf(await read), '1')
  t.equal(held.view.peek(port), undefined)
  await held.settle()
  held.only.value(2, 5)
  t.equal(textOf(await later), '2', 'who came after the word has what was asked after it')
  await held.settle()
  t.equal(held.questions.length, 2)
  t.equal(textOf(held.view.peek(port)!), '2')
})

t.test('what is refused, then said again, is a change; a reason said again is none', async (t) => {
  const held = new HandHeld()
  const watch = held.watch('port')
  const step = async (revision: number, answer: (question: HandHeld['only']) => void) => {
    held.word('port', revision)
    await held.settle()
    answer(held.only)
    await held.settle()
  }
  await held.settle()
  held.only.value(1)
  await held.settle()
  await step(2, (question) => question.refuse('r1', 2))
  await step(3, (question) => question.refuse('r1', 3))
  await step(4, (question) => question.refuse('r2', 4))
  await step(5, (question) => question.value(1, 5))
  await step(6, (question) => question.value(1, 6))
  const refused = (reason: string) => ({ refused: reason, code: 403 })
  t.same(watch.told, ['1', refused('r1'), refused('r2'), '1'])

  await step(7, (question) => question.refuse('r3', 7))
  await step(8, (question) => question.refuse('r3', 8, 404))
  t.same(watch.told.slice(4), [refused('r3')], 'the same reason under another code is no change to a watch')
  t.same(textOf(held.view.peek(port)!), { refused: 'r3', code: 404 }, 'a get has the code of now')
  t.not(saidOf({ refused: 'x', code: 403, revision: { epoch: 1, revision: 1 } }).id, saidOf({ bytes: Buffer.from('"x"'), revision: { epoch: 1, revision: 1 } }).id)
})

t.test('an answer older than what was handed or heard is asked again, with pauses, and is stale after the ask timeout', async (t) => {
  const held = new HandHeld()
  const watch = held.watch('port')
  await held.settle()
  held.only.value('new', 7)
  await held.settle()
  held.word('port', 8)
  held.auto = (question) => question.value('old', 6)
  await held.settle()
  held.only.value('old', 6)
  const took = await held.passUntil('the watch is stale', () => watch.told.includes('stale'), 3000)
  t.ok(took >= 1900 && took <= 2100, `stale after ${took} ms, the ask timeout being 2000`)
  const asked = held.questions.length
  t.ok(asked >= 8 && asked <= 30, `it was asked ${asked} times, with pauses`)
  const read = held.view.read(port)
  const failed = t.rejects(read, /did not answer in time/, 'a get is told that no current answer came')
  await held.pass(2025)
  await failed
  t.same(watch.told, ['"new"', 'stale'], 'nothing older was handed')

  held.auto = (question) => question.value('newer', 8)
  await held.pass(300)
  t.same(watch.told, ['"new"', 'stale', '"newer"'], 'a change says that it is current, too')
  t.same(held.rewound, [])
})

t.test('what still stands after 5 s of asking is the truth: the bucket was rewound', async (t) => {
  const held = new HandHeld()
  const watch = held.watch('port')
  await held.settle()
  held.only.value('before', 9)
  await held.settle()
  held.auto = (question) => question.value('restored', 4)
  held.word('port', 4)
  const took = await held.passUntil('the older value is handed', () => watch.told.includes('"restored"'), 7000)
  t.ok(took >= 5000 && took <= 5500, `after ${took} ms`)
  t.same(watch.told, ['"before"', 'stale', '"restored"'])
  t.same(held.rewound, [port])
  t.equal(held.view.counts.rewound, 1)
  held.auto = (question) => question.value('onward', 5)
  held.word('port', 5)
  await held.settle()
  t.equal(watch.told.at(-1), '"onward"', 'revisions count on from there')

  held.auto = undefined
  held.word('port', 1, { epoch: 2 })
  await held.settle()
  held.only.value('made anew', 1, 2)
  await held.settle()
  t.equal(watch.told.at(-1), '"made anew"', 'a later epoch is younger whatever its revision')
})

t.test('of two provisioners the one that is behind is never believed', async (t) => {
  const held = new HandHeld()
  const watch = held.watch('port')
  await held.settle()
  held.only.value(0, 10)
  await held.settle()
  let n = 0
  for (let change = 1; change <= 20; change++) {
    held.auto = (question) => n++ % 3 === 0 ? question.value(change, 10 + change) : question.value('behind', 2)
    held.word('port', 10 + change)
    await held.passUntil(`change ${change}`, () => watch.told.includes(String(change)), 1500)
    held.word('port', 2)
    await held.pass(500)
  }
  t.same(watch.told, Array.from({ length: 21 }, (_, i) => String(i)))
  t.same(held.rewound, [])
})

t.test('hearing lost: watches are stale and gets ask; hearing back: each watched value is asked once', async (t) => {
  const held = new HandHeld()
  held.auto = (question) => question.value(question.name.key)
  const watches = ['a', 'b', 'c'].flatMap((key) => [held.watch(key), held.watch(key)])
  await held.view.read(named('idle'))
  await held.settle()
  held.view.hears(false)
  t.same(watches.map(({ told }) => told.at(-1)), Array(6).fill('stale'))
  t.ok(held.view.lastKnown(named('a'))?.staleSince, 'with the time since when')
  t.equal(held.view.peek(named('idle')), undefined)
  const asked = held.questions.length
  await held.view.read(named('a'))
  t.equal(held.questions.length, asked + 1, 'a get is asked')
  await held.view.read(named('a'))
  t.equal(held.questions.length, asked + 2, 'and not served from memory')
  await held.settle()
  t.same(watches.map(({ told }) => told.at(-1)), Array(6).fill('stale'), 'an answer without hearing makes nothing current')
  const late = held.watch('b')
  late.sync(late.entry)
  t.same(late.told, ['stale'], 'a watch that begins now is told so')

  held.auto = (question) => question.value(question.name.key === 'b' ? 'moved' : question.name.key)
  const before = held.questions.length
  held.view.hears(true)
  await held.settle()
  t.same(held.questions.slice(before).map(({ name }) => name.key).sort(), ['a', 'b', 'c'])
  t.same(watches.map(({ told }) => told.at(-1)), ['live', 'live', '"moved"', '"moved"', 'live', 'live'])
})

t.test('an answer that was asked under an earlier hearing does not count as current', async (t) => {
  const held = new HandHeld()
  const watch = held.watch('port')
  await held.settle()
  const [early] = held.open
  held.view.hears(false)
  held.view.hears(true)
  early?.value(1)
  await held.settle()
  t.equal(held.view.peek(port), undefined)
  t.same(watch.told, ['stale'])
  held.only.value(2, 2)
  await held.settle()
  t.same(watch.told, ['stale', '2'])
})

t.test('a silent provisioner is probed after 5 s; when it is gone all is in doubt, and one scout asks on', async (t) => {
  const held = new HandHeld()
  held.auto = (question) => question.value(question.name.key)
  const watches = ['a', 'b', 'c'].map((key) => held.watch(key))
  await held.view.read(named('idle'))
  await held.pass(4900)
  t.equal(held.questions.length, 4, 'nobody is asked while there is no need')
  await held.pass(200)
  t.equal(held.questions.length, 5, 'then the value confirmed longest ago')
  held.word('nothing', 2)
  await held.pass(4900)
  t.equal(held.questions.length, 5, 'a word is a sign of life')

  held.auto = (question) => question.fail('unavailable')
  await held.pass(200)
  t.ok(held.view.inDoubt)
  t.same(watches.map(({ told }) => told), ['a', 'b', 'c'].map((key) => [`"${key}"`, 'stale']))
  t.equal(held.view.peek(named('idle')), undefined)
  t.equal(held.view.doubts, 1)

  const from = held.questions.length
  const times: number[] = []
  held.auto = (question) => { times.push(held.now); question.fail('unavailable') }
  await held.pass(20_000)
  t.equal(new Set(held.questions.slice(from).map(({ name }) => name.key)).size, 1, 'one value asks for all')
  const gaps = times.slice(1).map((at, i) => at - (times[i] as number))
  t.ok(times.length <= 20 && gaps.every((gap) => gap <= limits.reaskLongestMs + 50), `${times.length} asks in 20 s`)
  t.ok((gaps.at(-1) as number) > 4 * (gaps[0] as number), 'with growing pauses')

  held.auto = (question) => question.value(question.name.key)
  const back = held.questions.length
  await held.pass(2200)
  t.notOk(held.view.inDoubt)
  t.same(watches.map(({ told }) => told.at(-1)), ['live', 'live', 'live'])
  const asked = held.questions.slice(back).map(({ name }) => name.key)
  t.same(asked.sort(), ['a', 'b', 'c'], 'each value is asked once')
})

t.test('an ask that fails makes its own watch stale, and a probe tells whether the others are', async (t) => {
  const held = new HandHeld()
  held.auto = (question) => question.value(question.name.key)
  const [a, b] = [held.watch('a'), held.watch('b')]
  await held.settle()
  held.auto = (question) => question.name.key === 'a' ? question.fail('unavailable') : question.value('b')
  held.word('a', 2)
  await held.pass(3000)
  t.same([a.told, b.told], [['"a"', 'stale'], ['"b"']])
  t.notOk(held.view.inDoubt)
  held.auto = (question) => question.fail('bad-answer')
  held.word('b', 3)
  await held.pass(20_000)
  t.same(b.told, ['"b"', 'stale'], 'a broken answer makes its own value stale')
  t.notOk(held.view.inDoubt, 'and is a sign of life')
  held.auto = (question) => question.value(question.name.key, 3)
  await held.pass(limits.reaskLongestMs + 50)
  t.same([a.told.at(-1), b.told.at(-1)], ['live', 'live'])
})

t.test('a word ends the pauses: the value is asked at once', async (t) => {
  const held = new HandHeld()
  held.auto = (question) => question.fail('timeout')
  const watch = held.watch('port')
  await held.pass(4000)
  const asked = held.questions.length
  held.auto = (question) => question.value(1)
  held.word('port', 1)
  t.equal(held.questions.length, asked + 1)
  await held.settle()
  t.same(watch.told, ['stale', '1'])

  held.auto = undefined
  held.word('port', 2)
  await held.settle()
  held.word('port', 3)
  held.only.fail('timeout')
  await held.settle()
  held.only.value(3, 3)
  await held.settle()
  t.same(watch.told.slice(2), ['stale', '3'], 'a word during an ask that fails, too')
})

t.test('at most 64 asks are in flight, and those that wait for their turn are answered in order', async (t) => {
  const held = new HandHeld()
  const keys = Array.from({ length: 300 }, (_, i) => `k${i}`)
  const watches = keys.map((key) => held.watch(key))
  let most = 0
  const order: string[] = []
  while (held.open.length > 0) {
    most = Math.max(most, held.open.length)
    const [next] = held.open
    order.push(next?.name.key ?? '')
    next?.value(1)
    await held.settle()
  }
  t.equal(most, limits.asksInFlight)
  t.same(order, keys)
  held.view.hears(false)
  held.view.hears(true)
  await held.settle()
  t.equal(held.open.length, limits.asksInFlight, 'a reconnect is no flood')
  for (const watch of watches) watch.end()
  for (const question of held.open) question.value(1)
  await held.settle()
  t.equal(held.questions.length, 300 + limits.asksInFlight, 'nothing is asked for those who went while it waited for its turn')

  const gate = new Gate(1, 1)
  let open: () => void = () => undefined
  const first = gate.through(() => new Promise<void>((resolve) => { open = resolve }))
  const second = gate.through(async () => 2)
  await t.rejects(gate.through(async () => 3), /too much waits for its turn/, 'a queue has an end')
  open()
  await first
  t.equal(await second, 2)
})

t.test('who asks very much waits for himself: modules take turns, and none fills the queue alone', async (t) => {
  const gate = new Gate(1, 5, 3)
  const ran: string[] = []
  let release = (): void => {}
  const first = gate.through(() => new Promise<void>((resolve) => { release = resolve }), 'bad')
  const enter = (party: string, name: string) => gate.through(async () => { ran.push(name) }, party)
  const waiting = [enter('bad', 'bad1'), enter('bad', 'bad2'), enter('bad', 'bad3'), enter('good', 'good1'), enter('good', 'good2')]
  await t.rejects(enter('bad', 'bad4'), /too much waits for its turn/)
  await t.rejects(enter('other', 'other1'), /too much waits for its turn/, 'all together have a bound, too')
  release()
  await Promise.all([first, ...waiting])
  t.same(ran, ['bad1', 'good1', 'bad2', 'good2', 'bad3'])
  const many = Array.from({ length: 5000 }, (_, i) => i)
  const done: number[] = []
  const wide = new Gate(1, 10_000)
  await Promise.all(many.map((i) => wide.through(async () => { done.push(i) })))
  t.same(done, many, 'in order')
})

t.test('a get that is not answered ends with the ask timeout, wherever it waits', async (t) => {
  const held = new HandHeld({ askTimeoutMs: 500 })
  const busy = Array.from({ length: limits.asksInFlight }, (_, i) => held.watch(`busy${i}`))
  const both: Array<Promise<unknown>> = [held.view.read(port), held.view.list('m1')]
  const queued = both.map((one) => t.rejects(one, /did not answer in time/))
  await held.pass(600)
  await Promise.all(queued)
  for (const watch of busy) watch.end()
  for (const question of held.open) question.value(1)
  await held.settle()
  t.equal(held.questions.some(({ name }) => name.key === 'port'), false, 'nobody waits for it any more, so it is not asked')
  t.equal(held.lists, 0, 'nor the list')
  t.same(await held.view.list('m1'), { config: [], bound: [] })
})

t.test('values that nobody watches leave after a minute, by count and by size; nothing stays in memory', async (t) => {
  const held = new HandHeld()
  let size = 10
  held.auto = (question) => question.value('x'.repeat(size))
  await held.view.read(port)
  await held.pass(limits.unwatchedMs - 2000, 500)
  t.ok(held.questions.length > 5, 'a value that is served from memory is probed')
  t.ok(held.view.peek(port), 'still there, and got once more')
  await held.pass(limits.unwatchedMs - 2000, 500)
  t.equal(held.view.size, 1)
  await held.pass(4000, 500)
  t.equal(held.view.size, 0, 'the probe alone does not keep it')
  const asked = held.questions.length
  await held.pass(30_000, 500)
  t.equal(held.questions.length, asked, 'an idle gateway asks nobody')

  for (let i = 0; i < limits.unwatchedValues + 500; i++) await held.view.read(named(`k${i}`))
  t.equal(held.view.size, limits.unwatchedValues)
  t.equal(held.view.peek(named('k0')), undefined, 'the least recently used left')

  // Small at first, large when asked again: it is what they are now that counts.
  const grown = Array.from({ length: 200 }, (_, i) => named(`k${limits.unwatchedValues + i}`))
  size = 1_000_000
  for (const name of grown) await held.view.read(name, { noCache: true })
  const stay = grown.filter((name) => held.view.lastKnown(name))
  t.ok(stay.length * size <= limits.unwatchedBytes, `${stay.length} of them stay`)
  size = limits.unwatchedBytes
  await held.view.read(named('huge'))
  t.equal(held.view.lastKnown(named('huge')), undefined, 'one that is larger than all of the room is answered and not kept')
  size = 10
  await held.pass(limits.unwatchedMs + 2000, 500)
  t.equal(held.view.size, 0)
})

t.test('a watch that ends while it is asked is told nothing, and nothing is asked for it any more', async (t) => {
  const held = new HandHeld()
  const watch = held.watch('port')
  await held.settle()
  watch.end()
  held.word('port', 2)
  held.only.value(1, 2)
  await held.settle()
  t.same(watch.told, [])
  t.equal(held.questions.length, 1)

  const refusing = held.watch('gone')
  await held.settle()
  refusing.end()
  held.only.fail('unavailable')
  await held.pass(10_000)
  t.same(refusing.told, [])
  t.equal(held.questions.filter(({ name }) => name.key === 'gone').length, 1)
  t.equal(held.view.lastKnown(named('gone')), undefined, 'a value that was never answered is forgotten')

  for (let i = 0; i < 200; i++) held.watch('port').end()
  await held.settle()
  const asked = held.questions.length
  held.word('port', 3)
  held.word(undefined, 3)
  for (const question of held.open) question.value(1, 3)
  await held.settle()
  t.equal(held.questions.length, asked, 'no ask for the dropped')
})

t.test('a fan-out goes in slices; a change in its middle reaches each watcher as the newest value once', async (t) => {
  const held = new HandHeld()
  held.auto = (question) => question.value(0)
  const watches = Array.from({ length: 200 }, () => held.watch('port'))
  await held.pass(25)
  while (held.deferred.length > 0) held.runDeferred()
  t.same(new Set(watches.map(({ told }) => told.join())), new Set(['0']))

  held.auto = (question) => question.value(1, 2)
  held.word('port', 2)
  await held.settle()
  const has = (value: string) => watches.filter(({ told }) => told.includes(value)).length
  t.equal(has('1'), limits.fanoutSlice, 'the first slice at once')
  held.runDeferred()
  t.equal(has('1'), 2 * limits.fanoutSlice, 'then one a turn')
  watches[150]?.end()
  held.auto = (question) => question.value(2, 3)
  held.word('port', 3)
  await held.settle()
  while (held.deferred.length > 0) held.runDeferred()
  t.equal(has('2'), 199)
  t.equal(has('1'), 2 * limits.fanoutSlice, 'those who come late are told the newest alone')
  t.ok(watches.every(({ told }) => new Set(told).size === told.length), 'nobody is told twice')
  t.same(watches[150]?.told, ['0'], 'nothing after the end of a watch')
})

t.test('a fan-out that is begun again from within comes to its end', (t) => {
  const queue: Array<() => void> = []
  const fanout = new Fanout((work) => queue.push(work))
  const held = new HandHeld()
  const { entry } = new HandHeldWatch(held.view, port)
  let rounds = 0
  const told = new Set<number>()
  for (let i = 0; i < 150; i++) {
    entry.watchers.add({
      sync: () => {
        told.add(i)
        if (i === 100 && rounds++ < 2) fanout.tell(entry)
      }
    })
  }
  fanout.tell(entry)
  let turns = 0
  while (queue.length > 0 && turns++ < 100) queue.shift()?.()
  t.equal(told.size, 150)
  t.equal(queue.length, 0)
  t.ok(turns <= 12, `${turns} turns`)
  t.end()
})
