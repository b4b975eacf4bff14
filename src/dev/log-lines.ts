/** What the parts of dev say, as one reads it: each line with the name of its part in front. */

const levels: Record<number, string> = { 10: 'trace', 20: 'debug', 30: '', 40: 'warn', 50: 'ERROR', 60: 'FATAL' }
const unsaid = new Set(['level', 'time', 'pid', 'hostname', 'msg', 'part', 'node', 'server', 'reqId'])

const plain = (value: unknown): string => typeof value === 'string' && /^[^\s"]+$/.test(value) ? value : JSON.stringify(value)

/** A line of JSON logging as a short text; any other line as it is. */
export function readable (line: string): string {
  if (!line.startsWith('{')) return line
  let entry: Record<string, unknown>
  try {
    entry = JSON.parse(line) as Record<string, unknown>
  } catch {
    return line
  }
  const { level, msg } = entry
  if (typeof level !== 'number' || typeof msg !== 'string') return line
  const rest = Object.entries(entry).filter(([name]) => !unsaid.has(name)).map(([name, value]) => ` ${name}=${plain(value)}`)
  return `${levels[level] ? `${levels[level]} ` : ''}${msg}${rest.join('')}`
}

/** Whether a line of nats-server is worth a newcomer's attention: its own account of what it does is not. */
export const isWorthSaying = (line: string): boolean => !/\[(INF|DBG|TRC)\]/.test(line)
