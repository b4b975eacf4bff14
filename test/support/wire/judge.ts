/** Whether an answer is what a row wants: undefined where it is, else why not, in a clause. */
import { problems } from '../../../src/core/errors.js'
import { parsed, type HttpAnswer } from './bytes.js'
import type { RawExchange } from './http.js'
import type { Message, WatchSocket } from './websocket.js'

/** Headers by name: null is absent, `~` starts a pattern, anything else is exact. */
type WantedHeaders = Record<string, string | null>

interface Wanted {
  /** Parts that stand nowhere in the answer. */
  lacks?: string[]
  headers?: WantedHeaders
  /** The problem's name; `*`: any that the status bears. */
  problem?: string
}

export interface WantedHttp extends Wanted {
  status: number[]
  detail?: string[]
  body?: string
  json?: boolean
}

/** A response on the socket: with a `value` in raw bytes, or an `error` (one of) whose problem has the `status`. */
export interface WantedAnswer { id: string | number, value?: string, error?: number | number[], status?: number }

export interface WantedWs extends Wanted {
  status?: number[]
  answers?: WantedAnswer[]
  close?: number[]
  open?: boolean
}

const prefix = 'urn:mesh-gateway:problem:'
const namesOf = (status: number): string[] => Object.entries(problems).filter(([, problem]) => problem.status === status).map(([name]) => name)

/** Headers that a status always bears. */
const alongside: Record<number, [string, RegExp]> = {
  401: ['www-authenticate', /^Bearer/],
  405: ['allow', /[A-Z]/],
  426: ['upgrade', /websocket/i],
  429: ['retry-after', /\d/]
}

function judgeProblem (want: string | undefined, { status, headers, body }: Pick<HttpAnswer, 'status' | 'headers' | 'body'>): string | undefined {
  if (!headers['content-type']?.startsWith('application/problem+json')) return `content type ${headers['content-type']} of a ${status}`
  const names = want === '*' || want === undefined ? namesOf(status) : [want]
  const problem = parsed(body)
  if (!names.some((name) => problem?.type === prefix + name)) return `problem ${problem?.type}, not ${names.join(' or ') || 'any'} (${status})`
  if (problem.status !== status || typeof problem.title !== 'string') return 'the problem lacks its status or title'
  const borne: Array<[string, RegExp]> = [['cache-control', /no-store/]]
  if (alongside[status]) borne.push(alongside[status])
  for (const [name, pattern] of borne) if (!pattern.test(headers[name] ?? '')) return `header ${name} of a ${status}: ${headers[name]}`
  return undefined
}

function judgeHeaders (wanted: WantedHeaders = {}, headers: Record<string, string>): string | undefined {
  for (const [name, want] of Object.entries(wanted)) {
    const got = headers[name]
    const fits = want === null ? got === undefined : want.startsWith('~') ? new RegExp(want.slice(1), 'i').test(got ?? '') : got === want
    if (!fits) return `header ${name}: ${got}, not ${want}`
  }
  return undefined
}

function judgeBody (want: WantedHttp, answer: HttpAnswer): string | undefined {
  if ((want.problem !== undefined || want.json) && answer.body !== '') {
    const json = parsed(answer.body)
    if (json === undefined) return `the body of a ${answer.status} is no JSON`
    const why = answer.status >= 400 ? judgeProblem(want.problem, answer) : undefined
    if (why !== undefined) return why
    for (const part of want.detail ?? []) if (!new RegExp(part, 'i').test(json.detail ?? '')) return `the detail does not say ${part}`
  } else if (want.problem !== undefined && answer.status >= 400) {
    return `a ${answer.status} without a body`
  }
  if (want.body !== undefined && answer.body !== want.body) return `body ${answer.body.slice(0, 60)}, not ${want.body}`
  return undefined
}

export function judgeHttp (want: WantedHttp, exchange: RawExchange): string | undefined {
  const [answer] = exchange.responses
  if (!answer) return `no answer (${exchange.closed ?? 'nothing in time'})`
  if (!want.status.includes(answer.status)) return `status ${answer.status}, not ${want.status.join(' or ')}: ${answer.body.slice(0, 200)}`
  const why = judgeBody(want, answer) ?? judgeHeaders(want.headers, answer.headers)
  if (why !== undefined) return why
  for (const part of want.lacks ?? []) if (exchange.raw.includes(part)) return `the answer holds ${JSON.stringify(part).slice(0, 40)}`
  return undefined
}

/** The response that a wanted answer describes, if it came. */
export function answered (texts: Message[], want: WantedAnswer): Message | undefined {
  return texts.find((one) => {
    if (one.method !== undefined || one.id !== want.id) return false
    if (want.error !== undefined) {
      const code = one.error?.code
      return code !== undefined && [want.error].flat().includes(code) && (want.status === undefined || one.error?.data?.status === want.status)
    }
    if (one.result === undefined) return false
    return want.value === undefined || one.raw.replace(/\s+/g, '').includes(`"value":${want.value}`)
  })
}

function judgeTexts (want: WantedWs, texts: Message[]): string | undefined {
  const answers = want.answers ?? []
  const first = texts[0]
  if (first && first.method !== 'mesh/session.hello') return `the first frame is ${first.raw.slice(0, 60)}`
  for (const answer of answers) {
    const last = texts.slice(-2).map((one) => one.raw.slice(0, 90)).join(' ')
    if (!answered(texts, answer)) return `no ${JSON.stringify(answer)}; last: ${last}`
  }
  for (const part of want.lacks ?? []) if (texts.some((one) => one.raw.includes(part))) return `a frame holds ${part}`
  return undefined
}

export function judgeWs (want: WantedWs, client: WatchSocket): string | undefined {
  const { status = [101] } = want
  if (!status.includes(client.status)) return `handshake ${client.status}, not ${status.join(' or ')}`
  const why = want.problem !== undefined && client.status >= 400 ? judgeProblem(want.problem, client) : undefined
  if (why !== undefined) return why
  const headers = judgeHeaders(want.headers, client.headers)
  if (headers !== undefined) return headers
  if (want.close && !want.close.includes(client.closeCode ?? 0)) return `close ${client.closeCode}, not ${want.close.join(' or ')}`
  if (want.open && client.closed) return `closed with ${client.closeCode}`
  return judgeTexts(want, client.texts())
}
