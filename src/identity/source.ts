/** Where a JWK set is read from: a file, or a URL. */
import { readFile } from 'node:fs/promises'
import { limits } from '../core/limits.js'
import { fileVersion } from '../file-version.js'

export interface Source {
  /** What it is called in an error or a log line; of a URL neither user, password nor query. */
  name: string
  isFile: boolean
  /** Reads the text; rejects with an error whose message completes "…, but it". */
  read (): Promise<string>
  /** Of a file, something that differs once the file was written; undefined where it cannot be looked at, and for a URL. */
  version (): string | undefined
}

export const sourceOf = (location: string): Source =>
  /^https?:\/\//i.test(location) ? urlSource(location) : fileSource(location)

function fileSource (path: string): Source {
  return {
    name: path,
    isFile: true,
    async read () {
      try {
        const bytes = await readFile(path)
        if (bytes.length > limits.jwksBytes) throw new Error(tooLarge)
        return bytes.toString('utf8')
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException
        throw code ? new Error(`cannot be read (${code})`) : error
      }
    },
    version: () => fileVersion(path)
  }
}

const tooLarge = `is larger than ${limits.jwksBytes} bytes`

function urlSource (location: string): Source {
  const url = new URL(location)
  const { username, password } = url
  url.username = url.password = ''
  const headers: Record<string, string> = { accept: 'application/jwk-set+json, application/json' }
  if (username) headers.authorization = `Basic ${Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')}`
  return {
    name: `${url.origin}${url.pathname}`,
    isFile: false,
    version: () => undefined,
    async read () {
      const signal = AbortSignal.timeout(limits.jwksFetchMs)
      try {
        // A redirect could lead anywhere, off https too: whoever set the URL can set where it leads.
        const response = await fetch(url, { headers, signal, redirect: 'manual' })
        if (response.status !== 200) {
          await response.body?.cancel()
          throw new Answer(`answered with status ${response.status}${response.status >= 300 && response.status < 400 ? ': redirects are not followed' : ''}`)
        }
        return await limited(response)
      } catch (error) {
        if (error instanceof Answer) throw error
        if (signal.aborted) throw new Error(`did not answer within ${limits.jwksFetchMs} ms`)
        const code = ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code
        throw new Error(`cannot be read (${code ?? 'the connection failed'})`)
      }
    }
  }
}

/** What the server said is wrong, apart from faults of the connection. */
class Answer extends Error {}

async function limited (response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    length += chunk.length
    // Leaving the loop cancels the rest of the body.
    if (length > limits.jwksBytes) throw new Answer(tooLarge)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
