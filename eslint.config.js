import neostandard from 'neostandard'

// Imports run downward only (see docs/architecture.md). Each row: what lives under `files` may not reach what `never` names.
const rooms = [
  { files: ['src/core/**/*.ts'], never: ['fastify', 'fastify/*', '@fastify/*', 'nats', 'ws', '**/nats/**', '**/http/**', '**/identity/**', '**/agents/**', '**/dev/**', '**/routes/**', '**/app.js', '**/serve.js', '**/cli.js', '**/config.js'] },
  { files: ['src/core/compose/**/*.ts'], never: ['fastify', '@fastify/*', 'nats', '**/take-in/**', '**/provision/**', '**/nats/**', '**/http/**'] },
  { files: ['src/schemas/**/*.ts'], never: ['fastify', 'nats', '**/nats/**', '**/http/**', '**/identity/**', '**/agents/**', '**/dev/**', '**/routes/**'] },
  { files: ['src/nats/**/*.ts'], never: ['fastify', '@fastify/*', '**/http/**', '**/identity/**', '**/agents/**', '**/dev/**', '**/routes/**', '**/app.js', '**/serve.js', '**/cli.js'] },
  { files: ['src/identity/**/*.ts'], never: ['fastify', '@fastify/*', 'nats', '**/nats/**', '**/http/**', '**/agents/**', '**/dev/**', '**/routes/**'] },
  { files: ['src/http/**/*.ts'], never: ['nats', '**/nats/**', '**/agents/**', '**/dev/**', '**/routes/**', '**/serve.js', '**/cli.js'] },
  { files: ['src/agents/**/*.ts'], never: ['fastify', '@fastify/*', '**/http/**', '**/identity/**', '**/dev/**', '**/routes/**', '**/app.js', '**/serve.js', '**/cli.js'] },
  { files: ['routes/**/*.ts'], never: ['nats', '**/nats/**', '**/agents/**', '**/dev/**', '**/serve.js', '**/cli.js'] },
  { files: ['src/app.ts'], never: ['nats', '**/nats/**', '**/agents/**', '**/dev/**', '**/serve.js', '**/cli.js'] }
]

export default [
  ...neostandard({ ts: true, ignores: ['dist/**', '.cache/**', '.data/**', '.tap/**', 'coverage/**'] }),
  {
    rules: {
      '@stylistic/max-len': ['error', { code: 150, ignoreUrls: true, ignoreStrings: true, ignoreTemplateLiterals: true, ignoreRegExpLiterals: true }],
      'no-void': ['error', { allowAsStatement: true }]
    }
  },
  ...rooms.map(({ files, never }) => ({
    files,
    rules: { 'no-restricted-imports': ['error', { patterns: [{ group: never, message: 'Imports run one way: see docs/architecture.md.' }] }] }
  }))
]
