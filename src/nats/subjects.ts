/** Subjects of DESIGN section 4. Only names that were checked come in: nothing a client sent is ever part of a subject. */
import { isName } from '../core/names.js'

const checked = (name: string): string => {
  // A programming error, not a user's: every door checks names before they come here.
  if (!isName(name)) throw new Error('a name that is none was about to become part of a subject')
  return name
}

export const subjects = {
  get: (node: string, module: string) => `mesh.provision.${checked(node)}.${checked(module)}.get`,
  list: (node: string, module: string) => `mesh.provision.${checked(node)}.${checked(module)}.list`,
  changed: (node: string, module: string) => `mesh.provision.${checked(node)}.${checked(module)}.changed`,
  getOfAll: (node: string) => `mesh.provision.${checked(node)}.*.get`,
  listOfAll: (node: string) => `mesh.provision.${checked(node)}.*.list`,
  changedOfAll: (node: string) => `mesh.provision.${checked(node)}.*.changed`,
  applied: (server: string) => `mesh.broker.${checked(server)}.applied`,
  appliedOfAll: 'mesh.broker.*.applied'
}

export const revisionHeader = 'Mesh-Revision'
