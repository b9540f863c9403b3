// Several sources as one: what each of them gives, as it comes.

/** At most one item of each source waits for its reader. */
export async function* merged<T>(sources: AsyncGenerator<T, void, void>[]): AsyncGenerator<T, void, void> {
  const next = (source: AsyncGenerator<T, void, void>) =>
    source.next().then((result) => ({ source, result }));
  const pending = new Map(sources.map((source) => [source, next(source)]));
  try {
    while (pending.size > 0) {
      const { source, result } = await Promise.race(pending.values());
      if (result.done) {
        pending.delete(source);
        continue;
      }
      yield result.value;
      pending.set(source, next(source));
    }
  } finally {
    // A source that is being read ends after that: it is not waited for.
    for (const [source, reading] of pending) {
      reading.catch(() => {});
      void source.return().catch(() => {});
    }
  }
}
