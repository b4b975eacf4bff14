/** The long form of the fuzz: `npm run fuzz -- --seconds 600 --seed 7 --only http`. The gateway that was built is what is tried. */
import { parseArgs } from 'node:util'
import { kinds } from './kinds.js'
import { countsOf, fuzz } from './run.js'
import { Stage } from './stage.js'

const usage = `npm run fuzz -- [options]
  --seconds N     how long for each kind (60)
  --seed S        where to begin; drawn where it is left out
  --path P        with --seed and --only: the one input that a finding named
  --only A,B      some of ${Object.keys(kinds).join(', ')}`

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, seed: { type: 'string' }, path: { type: 'string' }, only: { type: 'string' }, help: { type: 'boolean' } }
})
const say = (line: string): void => { process.stdout.write(`${line}\n`) }

const ends: Array<() => unknown> = []
const owner = { teardown: (end: () => unknown) => ends.push(end) }

async function long (name: string, seconds: number, first: number): Promise<boolean> {
  const kind = kinds[name]
  if (!kind) throw new Error(`no kind ${name}\n${usage}`)
  const stage = await Stage.open(owner)
  const totals = new Map<string, number>()
  const began = Date.now()
  const until = began + seconds * 1000
  let inputs = 0
  for (let seed = first; inputs === 0 || Date.now() < until; seed++) {
    const report = await fuzz(stage, kind, { seed, runs: values.path === undefined ? Math.max(50, kind.runs) : 1, path: values.path })
    for (const [came, count] of report.counts) totals.set(came, (totals.get(came) ?? 0) + count)
    inputs += report.runs
    if (report.finding !== undefined) {
      say(`${name}: FOUND after ${inputs} inputs: ${report.finding}`)
      return false
    }
    if (seed === first) stage.remember()
    if (values.path !== undefined) break
  }
  say(`${name}: ${inputs} inputs in ${Math.round((Date.now() - began) / 1000)} s from seed ${first}: ${countsOf(totals)}; ${await stage.assertNotGrown()}`)
  return true
}

async function main (): Promise<number> {
  if (values.help) {
    say(usage)
    return 0
  }
  const seed = values.seed === undefined ? Date.now() % 2 ** 31 : Number(values.seed)
  say(`seed ${seed}`)
  let sound = true
  for (const name of values.only?.split(',') ?? Object.keys(kinds)) {
    try {
      if (!await long(name, Number(values.seconds), seed)) sound = false
    } finally {
      for (const end of ends.splice(0).reverse()) await end()
    }
  }
  return sound ? 0 : 1
}

process.exitCode = await main()
