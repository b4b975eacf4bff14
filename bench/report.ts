/** A run as text: a table for a terminal, and the same in Markdown for docs/performance.md. */
import { bars, judge, type Bar, type Measured } from './bars.js'
import type { Machine } from './machine.js'

const plain = (value: number): string => Number.isInteger(value) ? String(value) : value.toFixed(2)
const marks = { goal: 'goal reached', must: 'bar reached', missed: 'MISSED', 'no bar': '' } as const

function cells (measured: Measured): string[] {
  const { title, yardstick, better, unit, must, goal }: Bar = bars[measured.bar]
  const sign = better === 'higher' ? '≥' : '≤'
  const withUnit = (value: number): string => `${plain(value)}${unit && ` ${unit}`}`
  const bound = (value: number | undefined): string => value === undefined ? '' : `${sign} ${withUnit(value)}`
  const counted = must !== undefined && must === goal && !measured.yardstick
  return [
    title,
    withUnit(measured.value),
    measured.range ? `${plain(measured.range[0])} to ${plain(measured.range[1])}` : '',
    counted ? withUnit(must) : bound(must),
    counted ? '' : bound(goal),
    marks[judge(measured)],
    measured.ours,
    measured.yardstick ? `${measured.yardstick} (${yardstick})` : ''
  ]
}

const heads = ['figure', 'measured', 'rounds', 'must', 'goal', '', 'gateway', 'yardstick']

export function asMarkdown (all: readonly Measured[], of: Machine): string {
  const row = (of: readonly string[]): string => `| ${of.join(' | ')} |`
  return [
    `${machineLine(of)}`, '',
    row(heads), row(heads.map(() => '---')), ...all.map((one) => row(cells(one))), '',
    ...notes(all)
  ].join('\n')
}

export function asTable (all: readonly Measured[]): string {
  const rows = [heads, ...all.map(cells)]
  const widths = heads.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  const lines = rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column]!)).join('  ').trimEnd())
  return [...lines, '', ...notes(all)].join('\n')
}

const notes = (all: readonly Measured[]): string[] =>
  all.filter(({ note }) => note).map(({ bar, note }) => `- ${bars[bar].title}: ${note}.`)

export function machineLine ({ at, cores, processor, system, loadBefore, versions }: Machine): string {
  const libraries = Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(', ')
  return `${at.slice(0, 10)}, ${cores} cores (${processor}), ${system}, load ${loadBefore.toFixed(2)} before the run; ${libraries}.`
}
