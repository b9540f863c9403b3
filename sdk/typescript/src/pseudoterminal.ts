// A terminal as an object that an editor can show: it has the members of `vscode.Pseudoterminal`.
//
// The types are structural, so that nothing of the editor's is needed here. Output goes on over a restart of the gateway, and keys are
// never sent twice. It is shown by `Attach`, not by `Watch` and cells that are drawn again: the editor's terminal is an emulator
// itself, and answers a program's questions while it is shown.

import type { Connection, Outage } from "./connection.js";
import { Cancelled, GatewayUnavailable, ProvostError, isOutage } from "./errors.js";
import type { AttachRequest } from "./generated/provost/v1/AttachRequest.js";
import type { AttachResponse__Output } from "./generated/provost/v1/AttachResponse.js";
import type { AttachStart } from "./generated/provost/v1/AttachStart.js";
import { Emitter, type Event } from "./emitter.js";
import type { Dimensions, Outcome } from "./types.js";
import { method } from "./wire.js";

const ATTACH = method<AttachRequest, AttachResponse__Output>("Terminals", "Attach");

/** One message of the gateway has at most 64 KiB of input. */
const INPUT_BYTES_MAX = 64 << 10;
/** What a terminal of the gateway may be: a window that is hidden has no size. */
const COLUMNS_MIN = 2;
const COLUMNS_MAX = 1000;
const ROWS_MIN = 1;
const ROWS_MAX = 500;

/** Why keys are refused: the call ends then, and the view goes on. */
const REFUSES_KEYS: readonly string[] = ["LINE_RUNNING", "STDIN_CLOSED", "COMMAND_ENDED"];
const BELL = "\x07";

/** The terminal that is shown. */
interface ShownTerminal {
  readonly id: string;
  wait(options: { readonly signal: AbortSignal }): Promise<Outcome>;
  release(): Promise<void>;
}

export interface PseudoterminalOptions {
  /** What happens to the command when the person closes the terminal: it runs on, or is released; `detach` by default. */
  readonly onClose?: "detach" | "release";
}

/** Shows a terminal: `vscode.window.createTerminal({ name, pty })`. */
export class Pseudoterminal {
  readonly #connection: Connection;
  readonly #terminal: ShownTerminal;
  readonly #named: { readonly terminalId: string; readonly sessionId: string };
  readonly #releases: boolean;
  readonly #written = new Emitter<string>();
  readonly #closed = new Emitter<number | void>();
  readonly #renamed = new Emitter<string>();
  readonly #cancel = new AbortController();
  #send: ((request: AttachRequest) => void) | undefined;
  #size: Dimensions | undefined;
  #isOpen = false;

  /** Text for the editor's terminal. */
  readonly onDidWrite: Event<string> = this.#written.event;
  /** The command has ended, with this exit code; without one if a signal ended it or its end is not known. */
  readonly onDidClose: Event<number | void> = this.#closed.event;
  /** The name of the command. */
  readonly onDidChangeName: Event<string> = this.#renamed.event;

  /** @internal */
  constructor(connection: Connection, terminal: ShownTerminal, sessionId: string, options: PseudoterminalOptions) {
    this.#connection = connection;
    this.#terminal = terminal;
    this.#named = { terminalId: terminal.id, sessionId };
    this.#releases = options.onClose === "release";
  }

  /** The editor shows it now: what is on its screen comes first. */
  open(initialDimensions: Dimensions | undefined): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#size = initialDimensions;
    void this.#follow();
  }

  /** The person has closed it. */
  close(): void {
    this.#cancel.abort();
    // The person who closes it waits for nothing; a gateway that is away stops the command when its session ends.
    if (this.#releases) this.#terminal.release().catch(() => {});
  }

  /**
   * Keys, as the editor's terminal encodes them. Those that are pressed while no gateway answers are not sent. Those that are refused,
   * as while a line runs in a kept shell, ring the bell.
   */
  handleInput(data: string): void {
    const bytes = Buffer.from(data);
    for (let at = 0; at < bytes.length; at += INPUT_BYTES_MAX) {
      this.#send?.({ input: bytes.subarray(at, at + INPUT_BYTES_MAX) });
    }
  }

  /** The person's window has another size. */
  setDimensions(dimensions: Dimensions): void {
    this.#size = dimensions;
    this.#send?.({ resize: sizeOf(dimensions) });
  }

  /** Follows the terminal to its end, over restarts of the gateway. */
  async #follow(): Promise<void> {
    const outage = this.#connection.outage();
    const shown = new Shown();
    try {
      while (!(await this.#attach(shown, outage))) {
        // It goes on after a gap, after refused keys, or with the next gateway.
      }
      this.#closed.fire((await this.#terminal.wait({ signal: this.#cancel.signal })).exitCode);
    } catch (error) {
      if (error instanceof Cancelled) return;
      this.#written.fire(`\r\n${error instanceof Error ? error.message : String(error)}\r\n`);
      this.#closed.fire();
    }
  }

  /** Attaches once. Whether the command has ended. */
  async #attach(shown: Shown, outage: Outage): Promise<boolean> {
    const { signal } = this.#cancel;
    const call = this.#connection.duplex(ATTACH, signal);
    const start: AttachStart = { ...this.#named, offset: shown.offset, restoreScreen: !shown.isWhole };
    if (this.#size) start.size = sizeOf(this.#size);
    call.send({ start });
    let failure: ProvostError = new GatewayUnavailable("the gateway has ended the stream");
    try {
      for await (const { attached, restored, chunk, gap, end } of call.responses) {
        if (attached) {
          outage.over();
          shown.isPty = attached.pty !== null;
          this.#send = call.send;
          this.#renamed.fire([attached.command, ...attached.args].join(" "));
        } else if (restored) {
          this.#write(shown.restore(restored.data, restored.offset));
        } else if (chunk) {
          this.#write(shown.take(chunk.data, chunk.offset));
        } else if (gap) {
          // Too slow: what is on the screen now, and on from there.
          shown.skipTo(gap.toOffset);
          return false;
        } else if (end) {
          return true;
        }
      }
    } catch (error) {
      if (error instanceof ProvostError && REFUSES_KEYS.includes(error.reason)) {
        this.#write(BELL);
        return false;
      }
      if (!(error instanceof ProvostError) || !isOutage(error) || error instanceof Cancelled) throw error;
      failure = error;
    } finally {
      this.#send = undefined;
    }
    await outage.wait(failure, signal);
    return false;
  }

  #write(text: string): void {
    if (text !== "") this.#written.fire(text);
  }
}

/** What the editor's terminal shows, and up to which offset. */
class Shown {
  offset = 0;
  /** Whether it shows all up to the offset. */
  isWhole = false;
  isPty = true;
  #decoder = new TextDecoder();

  /** The screen in place of what was written before. */
  restore(data: Buffer, offset: number): string {
    this.#decoder = new TextDecoder();
    this.offset = offset;
    this.isWhole = true;
    return data.toString();
  }

  /** Output that is not shown yet. */
  take(data: Buffer, offset: number): string {
    // A byte that was shown before is not shown again.
    const fresh = data.subarray(Math.max(0, this.offset - offset));
    this.offset = Math.max(this.offset, offset + data.length);
    this.isWhole = true;
    const text = this.#decoder.decode(fresh, { stream: true });
    // A pseudo-terminal has done so (ONLCR, termios(3)).
    return this.isPty ? text : text.replaceAll("\n", "\r\n");
  }

  skipTo(offset: number): void {
    this.#decoder = new TextDecoder();
    this.offset = offset;
    this.isWhole = false;
  }
}

function sizeOf({ columns, rows }: Dimensions) {
  const within = (value: number, min: number, max: number) => Math.min(Math.max(Math.floor(value), min), max);
  return { columns: within(columns, COLUMNS_MIN, COLUMNS_MAX), rows: within(rows, ROWS_MIN, ROWS_MAX) };
}
