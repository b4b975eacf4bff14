import { loadConfig } from '../config.js'
import { serve } from '../serve.js'
import type { Command } from './command.js'
import { endWithParent } from './life.js'

export const command: Command = {
  async run () {
    endWithParent()
    await serve(loadConfig(process.env))
  }
}
