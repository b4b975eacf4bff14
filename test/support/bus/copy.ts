/** A bucket's backup, as `nats stream backup` takes it, and putting it back. */
import { createInbox, type NatsConnection } from 'nats'
import { decodeJson } from './client.js'

export interface Copy { stream: string, about: { config: unknown, state: unknown }, chunks: Uint8Array[] }

async function api (nc: NatsConnection, call: string, question: object): Promise<ReturnType<typeof decodeJson>> {
  const answer = decodeJson((await nc.request(`$JS.API.STREAM.${call}`, JSON.stringify(question), { timeout: 3000 })).data)
  if (answer.error) throw new Error(JSON.stringify(answer.error))
  return answer
}

/** What a stream holds now. */
export async function copyOf (nc: NatsConnection, stream: string): Promise<Copy> {
  const chunks: Uint8Array[] = []
  const inbox = createInbox()
  const whole = new Promise<void>((resolve) => {
    nc.subscribe(inbox, {
      callback: (_, message) => {
        // An empty message is the end.
        if (message.data.length === 0) resolve()
        else chunks.push(Uint8Array.from(message.data))
        message.respond()
      }
    })
  })
  const { config, state } = await api(nc, `SNAPSHOT.${stream}`, { deliver_subject: inbox, no_consumers: true })
  await whole
  return { stream, about: { config, state }, chunks }
}

/** Deletes the stream and puts the copy in its place: it has its creation time and its sequences. */
export async function putBack (nc: NatsConnection, { stream, about, chunks }: Copy): Promise<void> {
  await api(nc, `DELETE.${stream}`, {})
  const { deliver_subject: to } = await api(nc, `RESTORE.${stream}`, about)
  for (const chunk of [...chunks, new Uint8Array(0)]) await nc.request(to, chunk, { timeout: 3000 })
}
