/** Which users the bus should have: follows the broker seat, and the composition of the module that has it (DESIGN section 5). */
import type { NatsConnection } from 'nats'
import { parseJson, readDocument } from '../core/documents.js'
import { messageOf } from '../core/errors.js'
import type { Entry } from '../core/ports.js'
import type { Revision } from '../core/revision.js'
import type { Log } from '../nats/connection.js'
import { follow, type Following } from '../nats/follow.js'
import { SeatSchema, type Seat } from '../schemas/inventory.js'
import { rowsOf } from './user-list.js'

/** The list of a composition's revision: its rows, or why there are none to be had. Then the users stay as they are. */
export type WantedUsers = { revision: Revision } & ({ rows: unknown[] } | { problem: string })

export interface WantedUsersOptions {
  prefix: string
  /** The nats-server that this process stands beside. */
  server: string
  log: Log
  /** Called with each list, in order; with undefined when another module got the seat and its list is not there yet. */
  wanted (users: WantedUsers | undefined): void
}

// Nothing takes users away but a list without them: a marker, an absence or a broken document may be an accident, and
// every module would be off the bus.
function readUsers (entry: Entry, revision: Revision): WantedUsers {
  const what = `compositions ${entry.key}`
  if (entry.deleted) return { revision, problem: `${what} was removed: the users stay as they are` }
  try {
    const rows = rowsOf(parseJson(what, entry.text))
    return rows ? { revision, rows } : { revision, problem: `${what} carries no user list: the users stay as they are` }
  } catch (error) {
    return { revision, problem: messageOf(error) }
  }
}

/** Follows until it is stopped. */
export function followWantedUsers (nc: NatsConnection, { prefix, server, log, wanted }: WantedUsersOptions): Following {
  let seat: Seat | undefined
  let list: Following | undefined
  let stopped = false

  const followList = ({ node, module }: Seat): Following => {
    let epoch = 0
    let found = false
    const following: Following = follow(nc, { prefix, bucket: 'compositions', filter: `${node}.${module}` }, {
      anew: (now) => {
        epoch = now
        found = false
      },
      entry: (entry) => {
        found = true
        if (list === following) wanted(readUsers(entry, { epoch, revision: entry.revision }))
      },
      ready: () => { if (!found) log.info({ node, module }, 'the broker module has no composition yet: the users stay as they are') },
      trouble: (why) => { log.warn({ why }, 'the user list cannot be followed; trying on') }
    })
    return following
  }

  const takeSeat = (entry: Entry): void => {
    if (entry.deleted) return log.warn({}, 'the broker seat was taken away: the users stay as they are')
    let taken: Seat
    try {
      taken = readDocument('inventory', entry, SeatSchema)
    } catch (error) {
      return log.error({ why: messageOf(error) }, 'the broker seat is broken: the one before it stands')
    }
    if (!(taken.servers ?? [taken.node]).includes(server)) {
      log.warn({ server }, 'this server is not among those of the seat: nobody will ask whether it has the users')
    }
    if (stopped || (taken.node === seat?.node && taken.module === seat.module)) return
    seat = taken
    void list?.stop()
    wanted(undefined)
    list = followList(taken)
  }

  const seats = follow(nc, { prefix, bucket: 'inventory', filter: 'seat.broker' }, {
    anew: () => {},
    entry: takeSeat,
    ready: () => { if (!seat) log.info({}, 'nobody has the broker seat: the users stay as they are until somebody has') },
    trouble: (why) => { log.warn({ why }, 'the broker seat cannot be followed; trying on') }
  })

  return {
    async stop () {
      stopped = true
      await Promise.all([seats.stop(), list?.stop()])
    }
  }
}
