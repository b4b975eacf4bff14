/** The answer that a connection owes: what is said to it besides has to wait for its turn. */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** A connection, with the response that is being written to it, as Node keeps it. */
export type Answering = Socket & { _httpMessage?: ServerResponse | null }

/** The response that is due on a connection now; those of requests behind it follow. */
export const due = (socket: Answering): ServerResponse | null | undefined => socket._httpMessage

/** Calls `then` once the answers that are due on a connection are written; not at all where it ends before. */
export function inTurn (socket: Answering, then: () => void): void {
  const answer = due(socket)
  if (answer) answer.once('close', () => { if (!socket.destroyed) inTurn(socket, then) })
  else then()
}
