import type { TakeIns } from './take-in/take-ins.js'
import type { SettingsDesk } from './settings/settings.js'
import type { MeshState } from './state/mesh-state.js'
import type { View } from './provision/view.js'

/** What is there and what is missing, for `/readyz`; each `false` has its sentence. */
export interface Health {
  ready: boolean
  bus: boolean
  hearing: boolean
  /** Where the bus's user may not look at them this is false, and the gateway is ready all the same: it serves values alone. */
  buckets: boolean
  missing: string[]
}

/** What the routes call. `src/serve.ts` joins it with the bus; tests join it with what they like. */
export interface Core {
  view: View
  takeIns: TakeIns
  state: MeshState
  settings: SettingsDesk
  health (): Health
}
