/**
 * One run at a time; a call during a run waits for the next one, which all that wait share. So whoever calls gets a run that
 * began after the call, and however many call, two runs are enough.
 */
export class Shared<T> {
  #running: Promise<unknown> | undefined
  #next: Promise<T> | undefined

  get idle (): boolean { return this.#running === undefined && this.#next === undefined }

  /** Resolves when what runs and what waits have ended, whatever became of them. */
  async ended (): Promise<void> {
    while (this.#running || this.#next) await (this.#next ?? this.#running)?.catch(() => undefined)
  }

  /** The result of a run that begins now or, where one is going on, after it. */
  run (work: () => Promise<T>): Promise<T> {
    // One that waits has not begun, even in the moment between the run before it and its own.
    if (this.#next) return this.#next
    if (this.#running) {
      const after = (): Promise<T> => {
        this.#next = undefined
        return this.#begin(work)
      }
      this.#next = this.#running.then(after, after)
      return this.#next
    }
    return this.#begin(work)
  }

  #begin (work: () => Promise<T>): Promise<T> {
    const run = work()
    const ended = (): void => { if (this.#running === settled) this.#running = undefined }
    const settled: Promise<unknown> = run.then(ended, ended)
    this.#running = settled
    return run
  }
}
