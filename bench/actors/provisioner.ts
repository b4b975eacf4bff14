/**
 * A stand-in for a node's provisioner and for the broker agents, in a process of its own: it answers at once from memory, so
 * that what is measured is the gateway. It counts what it is asked, and says words on command.
 */
import { connect, headers, type Msg, type MsgHdrs, type NatsConnection } from 'nats'
import { act } from '../child.js'
import { microseconds } from '../clock.js'

interface Value { bytes: Uint8Array, revision: MsgHdrs }
interface Name { module: string, key: string }

const encoder = new TextEncoder()
const values = new Map<string, Value>()
const epoch = Date.now()
let nc: NatsConnection
let node = ''
let revision = 0
let asks = 0
/** Asks that wait to be answered; undefined while all are answered at once. */
let held: Msg[] | undefined
/** Told of each ask, while changes come one after the other. */
let askedOf: ((id: string) => void) | undefined

const idOf = ({ module, key }: Name): string => `${module} ${key}`

function keep (name: Name, text: string): MsgHdrs {
  const said = headers()
  said.set('Mesh-Revision', `${epoch}.${++revision}`)
  values.set(idOf(name), { bytes: encoder.encode(text), revision: said })
  return said
}

function say ({ module, key }: Name, said: MsgHdrs): number {
  const at = microseconds()
  nc.publish(`mesh.provision.${node}.${module}.changed`, encoder.encode(JSON.stringify({ kind: 'config', key })), { headers: said })
  return at
}

function answer (ask: Msg): void {
  const id = idOf({ module: ask.subject.split('.')[3]!, key: ask.json<{ key: string }>().key })
  const value = values.get(id)
  if (value) ask.respond(value.bytes, { headers: value.revision })
  askedOf?.(id)
}

const commands = {
  async connect (given: { url: string, node: string }) {
    node = given.node
    nc = await connect({ servers: given.url })
    nc.subscribe(`mesh.provision.${node}.*.get`, {
      queue: 'q',
      callback: (error, ask) => {
        if (error) return
        asks++
        if (held) held.push(ask)
        else answer(ask)
      }
    })
    nc.subscribe('mesh.broker.*.applied', { callback: (error, ask) => { if (!error) ask.respond('{}') } })
    await nc.flush()
  },

  set ({ text, ...name }: Name & { text: string }) { keep(name, text) },

  /** Sets a value and says the word; answers when it was said. */
  change: ({ text, ...name }: Name & { text: string }): number => say(name, keep(name, text)),

  /** Says the word without a change of the value's bytes, some times over. */
  say ({ times, ...name }: Name & { times: number }) {
    const value = values.get(idOf(name))
    if (!value) throw new Error(`there is no value ${name.key}`)
    for (let n = 0; n < times; n++) say(name, value.revision)
  },

  /** Publishes to subscribers of the yardstick; answers when. */
  publish ({ subject, text }: { subject: string, text: string }): number {
    const at = microseconds()
    nc.publish(subject, encoder.encode(text))
    return at
  },

  /** How often it was asked since this was called last. */
  asks (): number {
    const count = asks
    asks = 0
    return count
  },

  hold () { held = [] },
  heldAsks: (): number => held?.length ?? 0,
  release () {
    const waiting = held ?? []
    held = undefined
    for (const ask of waiting) answer(ask)
  },

  /**
   * Changes each value `times` over to a new text of `bytes`. The next change of a value comes 2 ms after the one before was
   * asked for: the gateway sees every one, and none comes while an ask is in flight, which would be another question.
   */
  async changeOften ({ module, keys, times, bytes }: { module: string, keys: string[], times: number, bytes: number }) {
    const left = new Map(keys.map((key) => [idOf({ module, key }), { name: { module, key }, left: times }]))
    await new Promise<void>((resolve) => {
      const next = (id: string): void => {
        const one = left.get(id)
        if (!one) return
        if (one.left-- === 0) {
          left.delete(id)
          if (left.size === 0) resolve()
          return
        }
        say(one.name, keep(one.name, JSON.stringify(String(one.left).padEnd(bytes - 2, '.'))))
      }
      askedOf = (id) => { if (left.has(id)) setTimeout(next, 2, id) }
      for (const id of [...left.keys()]) next(id)
    })
    askedOf = undefined
    await nc.flush()
  }
}

export type ProvisionerCommands = typeof commands
act(commands)
