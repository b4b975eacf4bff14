/**
 * Measures the gateway against yardsticks that run in the same minutes: `npm run bench`. Prints a table, writes
 * bench/results.json, and asserts nothing: figures of a shared machine are for reading. See docs/performance.md.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { judge, type Measured } from './bars.js'
import { asks } from './figures/asks.js'
import { etcd } from './figures/etcd.js'
import { fanout } from './figures/fanout.js'
import { get } from './figures/get.js'
import { idle, idleStream, mute } from './figures/memory.js'
import { takeIn } from './figures/take-in.js'
import { machine } from './machine.js'
import { asMarkdown, asTable, machineLine } from './report.js'
import { Stage } from './stage.js'

const figures: Record<string, (stage: Stage) => Promise<Measured[]>> =
  { get, etcd, asks, fanout, idle, 'idle-stream': idleStream, mute, 'take-in': takeIn }
const names = Object.keys(figures)
// From dist, where this is compiled to.
const root = join(import.meta.dirname, '../..')

const usage = `npm run bench -- [options]
  --quick         shorter rounds and fewer watchers, about a minute: whether it works, not figures
  --only A,B      some of ${names.join(', ')}
  --markdown      prints the table in Markdown
  --docs          the same, and puts it into docs/performance.md
  --profile DIR   writes CPU profiles of the gateways to DIR (figures are then slower)`

const say = (line: string): void => { process.stderr.write(`bench: ${line}\n`) }

interface Arguments { quick: boolean, only: string[], markdown: boolean, docs: boolean, profiles: string | undefined }

function readArguments (): Arguments {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      markdown: { type: 'boolean', default: false },
      docs: { type: 'boolean', default: false },
      profile: { type: 'string' },
      help: { type: 'boolean' }
    }
  })
  if (values.help) {
    process.stdout.write(`${usage}\n`)
    process.exit()
  }
  const only = values.only?.split(',').map((name) => name.trim()) ?? names
  const unknown = only.find((name) => !names.includes(name))
  if (unknown !== undefined) throw new Error(`--only names ${unknown}, but it takes ${names.join(', ')}, separated by commas`)
  const { quick, docs } = values
  if (docs && (quick || values.only !== undefined)) throw new Error('--docs takes a whole run: leave --quick and --only out')
  return { quick, only, markdown: values.markdown || docs, docs, profiles: values.profile && resolve(values.profile) }
}

/** Puts the table of a run between its marks. */
function putIntoDocs (text: string): void {
  const file = join(root, 'docs', 'performance.md')
  const [begin, end] = ['<!-- run: begin -->', '<!-- run: end -->']
  const page = readFileSync(file, 'utf8')
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from === -1 || to < from) throw new Error(`${file} lacks the lines ${begin} and ${end}, between which the table goes`)
  writeFileSync(file, `${page.slice(0, from)}${begin}\n${text}\n${page.slice(to)}`)
}

async function main (): Promise<void> {
  const { quick, only, markdown, docs, profiles } = readArguments()
  if (process.platform !== 'linux') throw new Error(`CPU time and memory are read from /proc, which ${process.platform} does not have: run it on Linux`)
  if (profiles) mkdirSync(profiles, { recursive: true })
  const of = machine()
  say(machineLine(of))
  if (of.loadBefore > of.cores / 4) say('the machine is busy: ratios hold better than absolute values, and neither holds well')
  const stage = await Stage.set({ quick, profiles, say })
  const measured: Measured[] = []
  try {
    for (const name of names.filter((name) => only.includes(name))) {
      const began = performance.now()
      measured.push(...await figures[name]!(stage))
      say(`${name} took ${((performance.now() - began) / 1000).toFixed(0)} s`)
    }
  } finally {
    await stage.strike()
  }
  const text = markdown ? asMarkdown(measured, of) : asTable(measured)
  process.stdout.write(`${text}\n`)
  if (docs) putIntoDocs(text)
  writeFileSync(join(root, 'bench', 'results.json'), `${JSON.stringify({ machine: of, quick, figures: measured.map((one) => ({ ...one, verdict: judge(one) })) }, null, 2)}\n`)
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))

main().then(() => process.exit(), (error: Error) => {
  say(error.message)
  process.exit(1)
})
