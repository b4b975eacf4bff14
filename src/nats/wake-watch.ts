/** Hears the keys that wake take-ins: the builder's, the indexer's and the operators' (DESIGN section 3). */
import type { NatsConnection } from 'nats'
import { isName } from '../core/names.js'
import type { BucketName } from '../core/ports.js'
import { Wakes, type WakesOptions } from '../core/take-in/wakes.js'
import type { Log } from './connection.js'
import { follow, type Following } from './follow.js'

const followed: Array<{ bucket: BucketName, filter: string, onlyNew: boolean }> = [
  { bucket: 'trunk', filter: '*', onlyNew: true },
  { bucket: 'builds', filter: 'done.*.*', onlyNew: true },
  { bucket: 'settings', filter: '*', onlyNew: true },
  // The inventory is learnt whole: it says which modules a node or an offer concerns.
  { bucket: 'inventory', filter: '*.*', onlyNew: false }
]

/** Wakes take-ins until it is stopped. Once all buckets are followed, and each time after a break, every module is looked at once. */
export function wakeOnKeys (nc: NatsConnection, prefix: string, options: WakesOptions, log: Log): Following {
  // A key that holds no name of a module concerns none, whatever it is.
  const wakes = new Wakes({ ...options, wake: (module, why) => { if (isName(module)) options.wake(module, why) } })
  const ready = new Set<BucketName>()
  const looked = (why: string): void => { if (ready.size === followed.length) wakes.all(why) }
  const followings = followed.map(({ bucket, filter, onlyNew }) => follow(nc, { prefix, bucket, filter, onlyNew }, {
    anew: () => {
      ready.delete(bucket)
      if (bucket === 'inventory') wakes.anew()
    },
    entry: (entry) => {
      // Whoever sets a value over HTTP takes it in himself, and is told what that run composed.
      if (bucket === 'settings' && options.isOwn(bucket, entry)) return
      if (ready.has(bucket)) wakes.written(bucket, entry)
      else if (bucket === 'inventory') wakes.learn(entry)
    },
    ready: () => {
      ready.add(bucket)
      looked('start')
    },
    resumed: () => { if (bucket === 'inventory') looked('the bus is heard again') },
    trouble: (why) => log.warn({ why }, 'the keys that wake take-ins are not heard; trying on')
  }))
  return { stop: async () => { await Promise.all(followings.map((one) => one.stop())) } }
}
