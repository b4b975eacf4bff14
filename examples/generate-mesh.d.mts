import type { MeshDescription } from '../src/schemas/mesh-description.js'

export interface MeshSize { modules?: number, nodes?: number, spread?: number, build?: number, servers?: string[] }
export function describeMesh (size?: MeshSize): Required<MeshDescription>
