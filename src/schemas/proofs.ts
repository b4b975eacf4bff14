/** How a caller may prove who it is, as `openapi.yaml` has it: a token or a certificate, either alone (DESIGN section 8). */
export const proofs: Array<Record<string, string[]>> = [{ bearer: [] }, { certificate: [] }]
