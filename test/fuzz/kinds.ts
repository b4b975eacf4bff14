import type { Kind } from './kind.js'
import { agentsKind } from './kinds/agents.js'
import { bytesKind } from './kinds/bytes.js'
import { documentsKind } from './kinds/documents.js'
import { framesKind } from './kinds/frames.js'
import { httpKind } from './kinds/http.js'
import { repliesKind } from './kinds/replies.js'
import { rpcKind } from './kinds/rpc.js'
import { tokensKind } from './kinds/tokens.js'

/** All kinds, by the name that `--only` takes. */
export const kinds: Record<string, Kind> = {
  http: httpKind,
  bytes: bytesKind,
  rpc: rpcKind,
  frames: framesKind,
  tokens: tokensKind,
  documents: documentsKind,
  replies: repliesKind,
  agents: agentsKind
}
