/** Bodies: JSON, or empty under any content type (DESIGN section 6). */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { MeshError } from '../core/errors.js'

export default fp(async (app: FastifyInstance) => {
  const json = app.getDefaultJsonParser('error', 'error')
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(/^application\/(?:[a-z0-9.+-]+\+)?json(?:\s*;|$)/i, { parseAs: 'string' }, (request, text, done) => {
    if (text === '') done(null, undefined)
    else json(request, text as string, done)
  })
  app.addContentTypeParser('*', { parseAs: 'string' }, (_request, text, done) => {
    if (text === '') done(null, undefined)
    else done(new MeshError('unsupported-media-type', 'the body is not JSON: send application/json, or no body'))
  })
}, { name: 'body' })
