/** Operators' settings over HTTP: checked, written beside those of others, composed (DESIGN section 6). */
import { canonical } from '../documents.js'
import { BadDocument, MeshError, Transient, messageOf } from '../errors.js'
import { limits } from '../limits.js'
import { quoted } from '../names.js'
import type { Store } from '../ports.js'
import { again, type Patience } from '../take-in/again.js'
import { Inventory } from '../take-in/inventory.js'
import type { TakeIns } from '../take-in/take-ins.js'
import type { SettingAnswer } from '../../schemas/setting.js'
import { changed, settingOf, type Change, type Condition } from './setting.js'

export interface SettingsOptions {
  /** The buckets as they can be reached now; throws the MeshError that says why they cannot. */
  store (): Store
  takeIns: Pick<TakeIns, 'run' | 'plan'>
  patience: Patience
}

interface Written { wrote: boolean, stands: ReturnType<typeof settingOf> }

export class SettingsDesk {
  constructor (private readonly options: SettingsOptions) {}

  /**
   * Changes a setting, then composes. `who` stands in the take-in's record. Undefined where the catalogue does not hold the
   * module. Rejects as `changed` does, with `unavailable`, or with the take-in's error, to which `written` is added: the setting
   * stands whatever became of the take-in.
   */
  async change (module: string, change: Change, { who, holds }: { who: string, holds: Condition }): Promise<SettingAnswer | undefined> {
    const { patience } = this.options
    const store = this.options.store()
    let written: Written | undefined
    try {
      written = await again(() => write(store, module, change, holds), patience.now() + limits.takeInMs, patience)
    } catch (error) {
      if (error instanceof MeshError) throw error
      if (error instanceof BadDocument) throw new MeshError('precondition-failed', `${error.message}: mend that document first`, { cause: error })
      const passing = error instanceof Transient || (error as Error).cause instanceof Error
      throw passing ? new MeshError('unavailable', `the setting was not written: ${messageOf(error)}`, { cause: error }) : error
    }
    if (!written) return undefined
    const { wrote, stands } = written
    try {
      const { outcome, composed, said } = await this.#compose(module, wrote, `${who} ${change.value ? 'set' : 'unset'} config ${quoted(change.key)}`)
      return { module, key: change.key, ...stands, written: wrote, takeIn: { outcome, composed, said } }
    } catch (error) {
      if (!(error instanceof MeshError)) throw error
      const said = wrote ? 'the setting is written, but ' : 'the setting stands as it is, but '
      const members = { ...error.members, module, key: change.key, ...stands, written: wrote }
      throw new MeshError(error.problem, said + error.message, { cause: error, members, retryAfterS: error.retryAfterS })
    }
  }

  /** Where nothing was written and nothing is behind, nothing is done: not even a record. */
  async #compose (module: string, wrote: boolean, by: string): Promise<SettingAnswer['takeIn']> {
    const { takeIns } = this.options
    if (!wrote) {
      const plan = (await takeIns.plan(module))?.plan
      if (plan && plan.outcome !== 'step-failed' && !plan.registered && plan.composed.length === 0 && !plan.grant) {
        const { outcome, composed, said } = plan
        return { outcome, composed, said }
      }
    }
    return takeIns.run(module, by)
  }
}

/** One try: what is written over is read first, then what it is computed from (DESIGN section 3). */
async function write (store: Store, module: string, change: Change, holds: Condition): Promise<Written | undefined> {
  const inventory = new Inventory(store)
  const target = await inventory.settings(module)
  const { document: held } = await inventory.module(module)
  if (!held) return undefined
  const settings = target.document ?? {}
  const next = changed(module, held.registered?.manifest, settings, change, holds)
  if (next) await store.write('settings', module, canonical(next), target.revision)
  return { wrote: next !== undefined, stands: settingOf(next ?? settings, change.key) }
}
