/** Looks at the raw request target before anything is made of it. */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { MeshError } from '../core/errors.js'
import { limits } from '../core/limits.js'

// No number sign, either: the router would end the path there, and ask for a key that its sender did not mean.
const readable = /^[!"$-~]*$/

export default fp(async (app: FastifyInstance) => {
  app.addHook('onRequest', ({ raw: { url = '', headers, httpVersion } }, _reply, done) => {
    if (headers.host === undefined && httpVersion === '1.1') return done(new MeshError('invalid', 'HTTP/1.1 needs a Host header'))
    if (url.length > limits.targetBytes) return done(new MeshError('uri-too-long', `the URL is longer than ${limits.targetBytes} bytes`))
    // A raw byte would be read as Latin-1 and name another key than its sender meant.
    done(readable.test(url) ? undefined : new MeshError('invalid', 'the URL holds a # or a byte that is not printable ASCII: percent-escape it'))
  })
}, { name: 'target' })
