import { loadConfig } from '../config.js'
import { serve } from '../serve.js'
import type { Command } from './command.js'
import { onSignal } from './life.js'

export const command: Command = {
  async run () {
    const config = loadConfig(process.env)
    const gateway = await serve(config)
    onSignal(() => gateway.drain(), config.DRAIN_MS)
  }
}
