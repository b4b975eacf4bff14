import type { FastifyReply } from 'fastify'
import { limits } from '../core/limits.js'
import type { Said } from '../core/provision/said.js'

type Value = Extract<Said, { bytes: Uint8Array }>

/** A small value as text: Node writes a text together with its headers, and bytes after them. The bytes are the same: they are UTF-8. */
const texts = new WeakMap<Value, string>()

/** Answers with a value's own bytes. */
export function sendBody (reply: FastifyReply, said: Value): FastifyReply {
  reply.header('content-type', 'application/json; charset=utf-8')
  if (said.bytes.length > limits.textBytes) return reply.send(said.bytes)
  let text = texts.get(said)
  if (text === undefined) texts.set(said, text = Buffer.from(said.bytes.buffer, said.bytes.byteOffset, said.bytes.length).toString('utf8'))
  return reply.send(text)
}
