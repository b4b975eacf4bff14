import type { NodeDetail } from '../../schemas/node-state.js'
import { readNode, readSeat } from './documents.js'
import type { Picture } from './picture.js'

/** The nodes that have a document, and those that are named otherwise, in order. */
export const nodesIn = (picture: Picture, others: Iterable<string>): string[] => [...new Set([...picture.named('node'), ...others])].sort()

/** What is known of a node itself. */
export function knownOf (picture: Picture, node: string): Pick<NodeDetail, 'node' | 'curve' | 'problem' | 'broker'> {
  const { document, bad } = readNode(picture.get('inventory', `node.${node}`))
  return {
    node,
    curve: document?.curve ?? null,
    ...(bad === undefined ? {} : { problem: bad }),
    broker: readSeat(picture.get('inventory', 'seat.broker')).document?.node === node
  }
}
