/** How often the provisioner is asked: counts, which no load of the machine can change. */
import { setTimeout as pause } from 'node:timers/promises'
import type { GetLoadCommands } from '../actors/get-load.js'
import type { Measured } from '../bars.js'
import { Actor } from '../child.js'
import { getRequest, value, type Stage } from '../stage.js'

const module = 'asker'
const inFlight = 64

export async function asks (stage: Stage): Promise<Measured[]> {
  const { provisioner } = stage
  const gateway = await stage.gateway()
  const load = await Actor.start<GetLoadCommands>('get-load')
  const headers = { Authorization: `Bearer ${await stage.token({ role: 'module', name: module })}` }
  const target = (key: string) => ({ port: gateway.port, request: getRequest(`/provision/config/${key}`, headers), status: 200 })
  const names = (kind: string, count: number): string[] => Array.from({ length: count }, (_, n) => `${kind}-${n}`)
  const fresh = async (keys: string[]): Promise<string[]> => {
    for (const key of keys) await provisioner.call('set', { module, key, text: JSON.stringify(value) })
    await provisioner.call('asks')
    return keys
  }

  const cold = await fresh(names('cold', 4))
  await load.call('burst', Array.from({ length: 200 }, (_, n) => target(cold[n % cold.length]!)))
  const coldAsks = await provisioner.call('asks')

  const waiting = await fresh(names('held', inFlight))
  await provisioner.call('hold')
  const answered = load.call('burst', waiting.map(target))
  while (await provisioner.call('heldAsks') < inFlight) await pause(5)
  await provisioner.call('say', { module, key: waiting[0]!, times: 3 })
  // The words are before the answers on the provisioner's connection: the gateway hears them while it asks.
  await provisioner.call('release')
  await answered
  const extraAsks = await provisioner.call('asks') - inFlight

  await Promise.all([gateway.stop(), load.end()])
  return [
    { bar: 'coldAsks', value: coldAsks, ours: `${coldAsks} asks` },
    { bar: 'extraAsks', value: extraAsks, ours: `${inFlight} asks and ${extraAsks} more`, note: 'three words were said of one value' }
  ]
}
