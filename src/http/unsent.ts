import type { Socket } from 'node:net'

/**
 * Bytes of a write that the kernel has not taken yet. A large write counts as unsent as a whole until its end; only this shows that a slow
 * client reads at all. Node has no public name for it; where it is missing a slow client is judged by whole writes.
 */
export function inKernelsWay (socket: Socket | null | undefined): number {
  const { writeQueueSize } = (socket as { _handle?: { writeQueueSize?: number } | null } | null | undefined)?._handle ?? {}
  return writeQueueSize ?? 0
}
