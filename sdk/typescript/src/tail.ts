// The last bytes of output.

/** Keeps at most `max` bytes. */
export class Tail {
  #pieces: Buffer[] = [];
  #length = 0;
  readonly #max: number;
  isCut = false;

  constructor(max: number) {
    this.#max = max;
  }

  push(data: Buffer): void {
    this.#pieces.push(data);
    this.#length += data.length;
    for (let first = this.#pieces[0]; first && this.#length > this.#max; first = this.#pieces[0]) {
      this.isCut = true;
      const excess = this.#length - this.#max;
      this.#length -= Math.min(excess, first.length);
      if (first.length > excess) this.#pieces[0] = first.subarray(excess);
      else this.#pieces.shift();
    }
  }

  bytes(): Buffer {
    return Buffer.concat(this.#pieces);
  }
}
