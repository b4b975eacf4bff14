import type { ModuleDetail, ModuleSummary } from '../../schemas/module-state.js'
import { own } from '../compose/manifest.js'
import { formatRevision } from '../revision.js'
import { settingTag } from '../settings/setting.js'
import { readBinding, readHeld, readManifest, readSettings } from './documents.js'
import type { ModuleState, NodeOfModule } from './module-state.js'
import type { Picture } from './picture.js'

/** A module in a list. */
export function summaryOf ({ module, where, why, trunk, registered, nodes, grants, last, problems }: ModuleState): ModuleSummary {
  return {
    module,
    where,
    why,
    trunk,
    registered,
    nodes: nodes.map(({ node, assigned, where, composition }) => ({
      node, assigned, where, composition: composition && { fp: composition.fp, commit: composition.commit }
    })),
    grants: grants.map(({ fp, commit, nodes }) => ({ fp, commit, nodes: Object.keys(nodes).sort() })),
    last: last && { outcome: last.outcome, at: last.at },
    problems
  }
}

/** A module by itself, with what its manifest declares beside what operators said of it. */
export function detailOf (picture: Picture, state: ModuleState): ModuleDetail {
  const { module, where, why, trunk, registered, assignment, nodes, grants, last, problems } = state
  const { document: manifest } = readManifest(picture.get('inventory', `module.${module}`))
  const settings = readSettings(picture.get('settings', module)).document ?? {}
  const binding = readBinding(picture.get('inventory', `binding.${module}`)).document ?? {}
  return {
    module,
    where,
    why,
    trunk,
    registered,
    assignment,
    nodes: nodes.map((one) => onNode(picture, one)),
    config: Object.entries(manifest?.config ?? {}).sort(byKey).map(([key, entry]) => ({
      key,
      set: Object.hasOwn(settings, key),
      ...(Object.hasOwn(settings, key) ? { setting: settings[key], etag: settingTag(settings[key]) } : {}),
      ...(Object.hasOwn(entry, 'default') ? { default: entry.default } : {})
    })),
    bound: Object.keys(manifest?.bound ?? {}).sort().map((key) => {
      const to = own(binding, key) ?? null
      const offers = to && readHeld(picture.get('inventory', `module.${to.module}`)).document?.registered?.manifest.offers
      return { key, to: to && { module: to.module, offer: to.offer }, offered: to !== null && Object.hasOwn(offers ?? {}, to.offer) }
    }),
    secrets: [...manifest?.secrets ?? []].sort(),
    offers: Object.keys(manifest?.offers ?? {}).sort().map((name) => ({ name, to: boundTo(picture, module, name) })),
    grants: grants.map(({ fp, commit, nodes }) => ({ fp, commit, nodes })),
    last,
    problems
  }
}

const byKey = ([a]: [string, unknown], [b]: [string, unknown]): number => a < b ? -1 : 1

/** The modules that are bound to an offer of one. */
function boundTo (picture: Picture, module: string, offer: string): string[] {
  return picture.named('binding').filter((of) =>
    Object.values(readBinding(picture.get('inventory', `binding.${of}`)).document ?? {}).some((to) => to.module === module && to.offer === offer))
}

/** A module on one of its nodes; nothing of its sealed credential. */
export function onNode (picture: Picture, { node, assigned, where, why, composition }: NodeOfModule): ModuleDetail['nodes'][number] {
  if (!composition) return { node, assigned, where, why, composition: null }
  const { fp, commit, revision, user } = composition
  return { node, assigned, where, why, composition: { fp, commit, revision: formatRevision({ epoch: picture.epoch('compositions'), revision }), user } }
}
