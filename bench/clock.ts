/** One clock for all processes of the machine: the kernel's monotonic one, in µs. */
export const microseconds = (): number => Number(process.hrtime.bigint()) / 1000
