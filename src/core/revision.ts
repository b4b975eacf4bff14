/** A bucket's creation time in ms, and a revision in it (DESIGN section 4). */
export interface Revision { epoch: number, revision: number }

const form = /^(\d{1,15})\.(\d{1,15})$/

/** `EPOCH.REVISION` as it stands in a `Mesh-Revision` header or a document; undefined for anything else. */
export function parseRevision (text: string | undefined): Revision | undefined {
  const found = text === undefined ? null : form.exec(text)
  return found ? { epoch: Number(found[1]), revision: Number(found[2]) } : undefined
}

export const formatRevision = ({ epoch, revision }: Revision): string => `${epoch}.${revision}`

/** Older is a lower revision of the same epoch, or an earlier epoch (DESIGN section 4). */
export const isOlder = (a: Revision, b: Revision): boolean => a.epoch === b.epoch ? a.revision < b.revision : a.epoch < b.epoch

/** The younger of two; either may be missing. */
export function youngest (a: Revision | undefined, b: Revision | undefined): Revision | undefined {
  if (!a || !b) return a ?? b
  return isOlder(a, b) ? b : a
}
