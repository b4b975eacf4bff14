import t from 'tap'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fromCurveSeed } from 'nkeys.js'
import { applyMesh, fingerprintOf, sayWrote } from '../src/dev/apply.js'
import { parseMeshFile, readMeshFile } from '../src/dev/mesh-file.js'
import { NatsStore } from '../src/nats/buckets.js'
import { client } from './support/bus/client.js'
import { mesh } from './support/bus/buckets.js'
import { natsServer } from './support/bus/nats-server.js'
import { projectRoot, temporaryFolder } from './support/machine.js'

const example = join(projectRoot, 'examples/mesh.yaml')
const CURVE = 'XAB3NANV3M6N7AHSQP2U5FRWKKUT7EG2ZXXABV4XVXYQRJGM4S2CZGHT'

t.test('a description that does not fit is said with its file, its line and its member', async (t) => {
  const cases: Array<[string, RegExp]> = [
    ['nodes:\n  node-a: {}\n  Node B: {}', /^mesh\.yaml:3: nodes\.Node B is no name: expected one that matches/],
    ['nodes:\n  node-a: { curve: nonsense }', /^mesh\.yaml:2: nodes\.node-a\.curve does not fit: expected string to match/],
    ['nodes: {}\nmodule: {}', /^mesh\.yaml:2: module is not known here: expected nodes, seat, modules/],
    ['seat:\n  module: bus', /^mesh\.yaml:2: seat\.node is missing/],
    ['modules:\n  billing:\n    nodes:\n      - node-a\n      - 7', /^mesh\.yaml:5: modules\.billing\.nodes\[1\] does not fit: expected string/],
    ['modules:\n  billing:\n    trunk: { fp: a, commit: 1111111222222233 }',
      /^mesh\.yaml:3: modules\.billing\.trunk\.commit does not fit: expected string, but YAML reads 1111111222222233 as a number: put it in quotes$/],
    ['modules:\n  billing:\n    trunk: { fp: 0x10, commit: abcdef1 }', /fp does not fit: expected string, but YAML reads 0x10 as a number: put it in quotes$/],
    ['seat: { module: true, node: node-a }', /^mesh\.yaml:1: seat\.module does not fit: expected string, but YAML reads true as a boolean: put it in quotes$/],
    ['seat: { module: ~, node: node-a }', /seat\.module does not fit: expected string, but YAML reads ~ as null: put it in quotes$/],
    ['seat:\n  module:\n  node: node-a', /^mesh\.yaml:\d: seat\.module does not fit: expected string, but nothing stands there$/],
    ['seat: { module: [bus], node: node-a }', /seat\.module does not fit: expected string$/],
    ['modules:\n  billing:\n    build:\n      commit: &c 12\n      manifest: {}\n    trunk: { fp: a, commit: *c }', /commit does not fit: expected string, but YAML reads 12 as a number/],
    ['modules:\n  billing:\n    build: { commit: abcdef1, manifest: { permissions: { publish: [7] } } }', /publish\[0\] does not fit: expected string, but YAML reads 7 as a number/],
    ['modules:\n  billing:\n    nodes: [node-a, node-a]', /^mesh\.yaml:3: modules\.billing\.nodes does not fit/],
    ['modules:\n  billing:\n    build:\n      manifest: {}', /^mesh\.yaml:4: modules\.billing\.build\.commit is missing/],
    ['modules:\n  billing:\n    build:\n      commit: abcdef1\n      manifest:\n        confg: {}', /^mesh\.yaml:6: modules\.billing\.build\.manifest\.confg is not known here/],
    ['modules:\n  billing:\n    build:\n      commit: abcdef1\n      manifest:\n        permissions: { publish: ["a b"] }',
      /^mesh\.yaml:6: modules\.billing\.build\.manifest cannot be taken in: the manifest of billing may not publish as it asks: the subject "a b" holds white space/],
    ['modules:\n  billing:\n    build:\n      commit: abcdef1\n      manifest: { module: other }', /names another module, "other"/],
    ['modules:\n  billing:\n    build:\n      fp: fp2-7\n      commit: abcdef1\n      manifest: {}', /^mesh\.yaml:4: modules\.billing\.build\.fp does not fit/],
    ['modules:\n  billing:\n    settings: { "": 1 }', /^mesh\.yaml:3: modules\.billing\.settings has a key, "", that is empty/],
    ['modules:\n  billing:\n    settings: { a: 12345678901234567890 }', /^mesh\.yaml:3: the number 12345678901234567890 is none that a double holds: write it as a string/],
    ['modules:\n  billing:\n    settings: { a: 0xfffffffffffffff1 }', /^mesh\.yaml:3: the number 0xfffffffffffffff1/],
    ['modules:\n  billing:\n    settings: { a: .inf }', /^mesh\.yaml:3: the number \.inf/],
    [`modules:\n  billing:\n    settings: { a: ${'['.repeat(80)}${']'.repeat(80)} }`, /^mesh\.yaml nests deeper than/],
    ['modules:\n  billing: {}\n  billing: {}', /^mesh\.yaml:3: Map keys must be unique/],
    ['nodes: {\n  node-a: {}', /^mesh\.yaml:\d: /],
    ['- a', /^mesh\.yaml:1: does not fit: expected object/],
    [`a: &a [${'x,'.repeat(50)}]\n` + Array.from({ length: 9 }, (_, i) => `${'abcdefghij'[i + 1]}: &${'abcdefghij'[i + 1]} [${`*${'abcdefghij'[i]},`.repeat(50)}]`).join('\n'), /Excessive alias count|larger than/]
  ]
  for (const [text, message] of cases) t.throws(() => parseMeshFile('mesh.yaml', text), { name: 'BadMeshFile', message }, text.slice(0, 60))
  t.same(parseMeshFile('mesh.yaml', '').mesh, {}, 'an empty file describes nothing')
  t.same(parseMeshFile('mesh.yaml', 'modules: { a: { settings: { x: 1.50, y: 1e3, z: 0x10, "__proto__": 1 } } }').mesh.modules?.a?.settings,
    JSON.parse('{"x":1.5,"y":1000,"z":16,"__proto__":1}'))
  await t.rejects(readMeshFile(join(temporaryFolder(t), 'none.yaml')), { name: 'BadMeshFile', message: /none\.yaml cannot be read \(ENOENT\)/ })
})

t.test('the example is written as builder, indexer and operators would, once, and what a take-in registered is left alone', async (t) => {
  const server = await natsServer(t)
  const nc = await client(t, server.url)
  const kv = await mesh(nc)
  const store = new NatsStore(nc, 'mesh_')
  const folder = temporaryFolder(t)
  const file = await readMeshFile(example)
  const wrote = await applyMesh(store, file, folder)
  t.match(sayWrote(wrote).join('\n'), /^wrote inventory: node\.node-a.*\nwrote builds: done\.billing\.fp2-\w{8}, done/)

  const seed = join(folder, 'nodes/node-a.curve')
  t.equal(statSync(seed).mode & 0o777, 0o600)
  const curve = fromCurveSeed(Buffer.from(readFileSync(seed, 'utf8').trim())).getPublicKey()
  t.same(await kv.get('inventory', 'node.node-a'), { node: 'node-a', curve })
  t.same(await kv.get('inventory', 'seat.broker'), { module: 'bus', node: 'node-c' })
  t.same(await kv.get('inventory', 'module.billing'), { module: 'billing' })
  t.same(await kv.get('inventory', 'assignment.billing'), { nodes: ['node-a', 'node-b'] })
  t.same(await kv.get('inventory', 'binding.billing'), { database: { module: 'postgres', offer: 'url' } })
  t.same(await kv.get('settings', 'billing'), { port: 9090 })
  const trunk = await kv.get('trunk', 'billing') as { fp: string, commit: string }
  const done = await kv.get('builds', `done.billing.${trunk.fp}`) as { fp: string, commit: string, manifest: { module: string } }
  t.match(done, { ...trunk, manifest: { module: 'billing', config: { port: { default: 8080 } } } })
  t.equal(trunk.fp, fingerprintOf(done.manifest), 'a build that names no fingerprint has one of its manifest')
  t.notOk(await kv.entry('inventory', 'assignment.mailer'), 'not assigned')
  const reports = await kv.get('trunk', 'reports') as { fp: string }
  t.notOk(await kv.entry('builds', `done.reports.${reports.fp}`), 'not built')

  t.same(await applyMesh(store, file, folder), [], 'nothing differs')
  t.same(sayWrote([]), ['nothing to write: what the file names stands as described; what it does not name is left as it is'])

  // A take-in registered it, an operator set a value, and the seed is on its node alone.
  await kv.registered('billing', 'b')
  const registered = await kv.revision('inventory', 'module.billing')
  await kv.put('settings', 'billing', { port: 1 })
  await kv.delete('inventory', 'module.mailer')
  await kv.put('inventory', 'node.node-b', { node: 'node-b', curve: CURVE })
  const elsewhere = temporaryFolder(t)
  writeFileSync(join(elsewhere, 'note'), '')
  t.same(await applyMesh(store, file, elsewhere), [{ bucket: 'settings', key: 'billing' }, { bucket: 'inventory', key: 'module.mailer' }])
  t.equal(await kv.revision('inventory', 'module.billing'), registered)
  t.match(await kv.get('inventory', 'node.node-b'), { curve: CURVE })
  t.notOk(existsSync(join(elsewhere, 'nodes')), 'no node gets a key whose seed it does not have')

  // Names that stand nowhere are refused before anything is written; those that stand on the bus are known.
  const about = (text: string) => applyMesh(store, parseMeshFile('more.yaml', text), folder)
  await t.rejects(about('modules:\n  extra:\n    nodes: [node-a, node-q]'), { name: 'BadMeshFile', message: /^more\.yaml:3: modules\.extra\.nodes\[1\] names the node "node-q", which is neither here under nodes nor on the bus/ })
  await t.rejects(about('seat:\n  module: nobody\n  node: node-a'), { message: /^more\.yaml:2: seat\.module names the module "nobody"/ })
  await t.rejects(about('modules:\n  extra:\n    bindings: { db: { module: postgre, offer: url } }'), { message: /^more\.yaml:3: modules\.extra\.bindings\.db\.module names the module "postgre"/ })
  t.notOk(await kv.entry('inventory', 'module.extra'))
  t.same(await about(`nodes:\n  node-d: { curve: ${CURVE} }\nmodules:\n  extra:\n    nodes: [node-a, node-d]\n    bindings: { db: { module: postgres, offer: url } }`), [
    { bucket: 'inventory', key: 'node.node-d' }, { bucket: 'inventory', key: 'binding.extra' }, { bucket: 'inventory', key: 'assignment.extra' }, { bucket: 'inventory', key: 'module.extra' }
  ])
})
