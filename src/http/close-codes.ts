import type { Ending } from './sessions.js'

/** Close codes of DESIGN section 7: 44xx say not to come back as one is, 45xx to come back with pauses. */
export const closeCodes = {
  binary: 1003, fault: 1011, draining: 1012, badMessages: 4400, expired: 4401, tooManyMessages: 4429, notReading: 4508
} as const

/** The code and the words of an ending that is not the client's doing. */
export const closings: Record<Ending, [number, string]> = {
  draining: [closeCodes.draining, 'the gateway is going down: reconnect in a moment'],
  'not-valid': [closeCodes.expired, 'the credential is no longer valid'],
  'not-reading': [closeCodes.notReading, 'nothing was read for too long: come back in a moment']
}
