import { limits } from '../core/limits.js'

/** Whether an `If-None-Match` or `If-Match` header names an ETag (RFC 9110, sections 13.1.1 and 13.1.2). */
const tags = /(?:W\/)?"[^"]*"/g

/** Weak comparison, as If-None-Match asks for: `*` names every one. */
export function matchesWeakly (header: string | undefined, etag: string): boolean {
  if (header === undefined) return false
  if (header === etag) return true // what nearly all send
  if (header.trim() === '*') return true
  for (const [tag] of header.matchAll(tags)) if ((tag.startsWith('W/') ? tag.slice(2) : tag) === etag) return true
  return false
}

/** Strong comparison, as If-Match asks for: a weak tag names none. */
export function matchesStrongly (header: string, etag: string): boolean {
  if (header.trim() === '*') return true
  for (const [tag] of header.matchAll(tags)) if (tag === etag) return true
  return false
}

/** Whether a `Cache-Control` request header has a directive without or with any argument. */
export const hasDirective = (header: string | undefined, name: string): boolean =>
  header !== undefined && header.split(',').some((part) => part.split('=')[0]?.trim().toLowerCase() === name)

/** The seconds of a `Cache-Control` request directive; undefined where it is not there or holds none. */
export function secondsOf (header: string | undefined, name: string): number | undefined {
  for (const part of header?.split(',') ?? []) {
    const [directive, argument] = part.split('=').map((one) => one.trim())
    if (directive?.toLowerCase() === name && argument !== undefined && /^"?\d{1,10}"?$/.test(argument)) return Number(argument.replaceAll('"', ''))
  }
  return undefined
}

/** The seconds of `Prefer: wait=S` (RFC 7240), bounded; 0 where it is not there. */
export function waitOf (header: string | undefined): number {
  const found = /(?:^|[,;])\s*wait\s*=\s*"?(\d{1,10})"?\s*(?:$|[,;])/i.exec(header ?? '')
  return found ? Math.min(Number(found[1]), limits.preferWaitS) : 0
}
