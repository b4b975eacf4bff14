/** The API's description, generated from the routes' schemas; `openapi.yaml` at the top of the project is its checked-in copy. */
import swagger from '@fastify/swagger'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { stringify } from 'yaml'
import { version } from '../package-info.js'

/** The description as YAML; anchors, which the library makes of shared parts, would be there by accident of the code. */
export const descriptionYaml = (app: FastifyInstance): string => stringify(app.swagger(), { aliasDuplicateObjects: false, lineWidth: 120 })

interface Described { paths?: Record<string, Record<string, { requestBody?: { required?: boolean } }>> }

/** No body is the same as an empty object where one is taken, which a schema of the body cannot say; a PUT's is the value itself. */
function bodiesAreOptional<T> (document: T): T {
  for (const path of Object.values((document as Described).paths ?? {})) {
    for (const [method, { requestBody }] of Object.entries(path)) if (requestBody) requestBody.required = method === 'put'
  }
  return document
}

// The plugin's types are those of OpenAPI 3.0, which had no name for it.
const certificate = {
  type: 'mutualTLS',
  description: 'Where TLS_CLIENT_CA is set: an X.509-SVID, whose one URI is such a SPIFFE ID. A token beside it must be of the same.'
} as unknown as { type: 'http', scheme: string }

export default fp(async (app: FastifyInstance) => {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'mesh-gateway',
        version,
        description: 'The front door of a NATS mesh. A module reads its own values and sees them change live, as the module it has ' +
          'proved to be; an operator takes a new build in with one POST. The WebSocket at /watch is described in docs/watch.md. ' +
          'A path that is none is 404 `not-found`, a method that a path has not is 405 `method-not-allowed` with Allow, and a websocket ' +
          'upgrade of any other path than /watch is 426 `upgrade-required`, or that path\'s own error.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' }
      },
      servers: [{ url: '/' }],
      tags: [
        { name: 'provision', description: "A module's own values" },
        { name: 'take-in', description: "Taking a module's new build in" },
        { name: 'state', description: 'Where each module stands on each node, and why' },
        { name: 'settings', description: "Operators' settings of a module's config" },
        { name: 'operations', description: 'Health and description of this gateway' }
      ],
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            bearerFormat: 'JWT',
            description: 'A JWT-SVID whose `sub` is spiffe://TRUST_DOMAIN/module/M, /operator/O or /reader/R, or a token of an OpenID provider with the scope mesh:operate or mesh:read.'
          },
          certificate
        }
      }
    },
    transformObject: (document) => bodiesAreOptional('openapiObject' in document ? document.openapiObject : {}),
    refResolver: { buildLocalReference: (json, _base, _fragment, i) => typeof json.$id === 'string' ? json.$id : `schema-${i}` }
  })
}, { name: 'openapi' })
