// Events with listeners, in the form that editors have them.

/** As `vscode.Disposable`. */
export interface Disposable {
  dispose(): void;
}

/** As `vscode.Event`. */
export type Event<T> = (listener: (event: T) => unknown, thisArgs?: unknown, disposables?: Disposable[]) => Disposable;

/** Tells listeners, in the order in which they came. */
export class Emitter<T> {
  readonly #listeners = new Set<(event: T) => unknown>();

  /** Adds a listener until it is disposed of. */
  readonly event: Event<T> = (listener, thisArgs, disposables) => {
    // A listener that is added twice is told twice.
    const told = (event: T) => listener.call(thisArgs, event);
    this.#listeners.add(told);
    const disposable = { dispose: () => void this.#listeners.delete(told) };
    disposables?.push(disposable);
    return disposable;
  };

  fire(event: T): void {
    for (const told of [...this.#listeners]) told(event);
  }
}
