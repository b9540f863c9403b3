// A terminal: one command, from its start until its release.
//
// Output is read by offset. When a gateway goes away, reading goes on at the next one with the first byte that has not
// been read, so that no byte is lost or doubled.

import type { CallOptions, Connection } from "./connection.js";
import { GatewayUnavailable, NotFound, OutputLost, ProvostError, isOutage, Cancelled } from "./errors.js";
import type { GetOutputRequest } from "./generated/provost/v1/GetOutputRequest.js";
import type { GetOutputResponse__Output } from "./generated/provost/v1/GetOutputResponse.js";
import type { GetTerminalRequest } from "./generated/provost/v1/GetTerminalRequest.js";
import type { GetTerminalResponse__Output } from "./generated/provost/v1/GetTerminalResponse.js";
import type { KillTerminalRequest } from "./generated/provost/v1/KillTerminalRequest.js";
import type { OutputStream } from "./generated/provost/v1/OutputStream.js";
import type { ReleaseTerminalRequest } from "./generated/provost/v1/ReleaseTerminalRequest.js";
import type { SignalTerminalRequest } from "./generated/provost/v1/SignalTerminalRequest.js";
import type { StreamOutputRequest } from "./generated/provost/v1/StreamOutputRequest.js";
import type { StreamOutputResponse__Output } from "./generated/provost/v1/StreamOutputResponse.js";
import type { WaitForExitRequest } from "./generated/provost/v1/WaitForExitRequest.js";
import type { WaitForExitResponse__Output } from "./generated/provost/v1/WaitForExitResponse.js";
import type { WriteInputRequest } from "./generated/provost/v1/WriteInputRequest.js";
import type { WriteInputResponse__Output } from "./generated/provost/v1/WriteInputResponse.js";
import { Pseudoterminal, type PseudoterminalOptions } from "./pseudoterminal.js";
import {
  durationOf,
  outcomeOf,
  terminalOf,
  type Chunk,
  type Gap,
  type Outcome,
  type Stream,
  type TerminalInfo,
} from "./types.js";
import { method } from "./wire.js";

const GET = method<GetTerminalRequest, GetTerminalResponse__Output>("Terminals", "GetTerminal");
const OUTPUT = method<GetOutputRequest, GetOutputResponse__Output>("Terminals", "GetOutput");
const STREAM = method<StreamOutputRequest, StreamOutputResponse__Output>("Terminals", "StreamOutput");
const WAIT = method<WaitForExitRequest, WaitForExitResponse__Output>("Terminals", "WaitForExit");
const SIGNAL = method<SignalTerminalRequest, object>("Terminals", "SignalTerminal");
const KILL = method<KillTerminalRequest, object>("Terminals", "KillTerminal");
const RELEASE = method<ReleaseTerminalRequest, object>("Terminals", "ReleaseTerminal");
const WRITE = method<WriteInputRequest, WriteInputResponse__Output>("Terminals", "WriteInput");

/** One write: a request of the gateway has at most 3 MiB. */
const WRITE_BYTES_MAX = 1 << 20;

/** What the gateway keeps of a terminal's output. */
export interface Retained {
  /** Without an incomplete character at a cut; invalid bytes are U+FFFD. */
  readonly text: string;
  /** Whether any output was dropped before it. */
  readonly truncated: boolean;
  /** Of the byte after the last one. */
  readonly nextOffset: number;
  readonly outcome: Outcome | undefined;
}

export interface AttachOptions {
  /** The first byte that is wanted; 0 by default. */
  readonly offset?: number;
  readonly stream?: Stream;
  /** Whether to go on with new output until the command has ended; true by default. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal | undefined;
}

export class Terminal implements AsyncDisposable {
  readonly #connection: Connection;
  readonly #sessionId: string;
  /** Such as `term_01K...`. */
  readonly id: string;

  /** @internal */
  constructor(connection: Connection, sessionId: string, id: string) {
    this.#connection = connection;
    this.#sessionId = sessionId;
    this.id = id;
  }

  /** Its present state. */
  async info(): Promise<TerminalInfo> {
    const { terminal } = await this.#connection.call(GET, this.#named());
    return terminalOf(terminal!);
  }

  /** The output from an offset on. */
  async *attach(options: AttachOptions = {}): AsyncGenerator<Chunk | Gap, void, void> {
    const { stream = "stdout", follow = true, signal } = options;
    let offset = options.offset ?? 0;
    const outage = this.#connection.outage();
    for (;;) {
      const request = { ...this.#named(), stream: streamName(stream), offset, follow };
      let failure: ProvostError = new GatewayUnavailable("the gateway has ended the stream");
      try {
        for await (const { chunk, gap, end } of this.#connection.stream(STREAM, request, signal)) {
          if (chunk) {
            outage.over();
            // A byte that was read before is not given again.
            const data = chunk.data.subarray(Math.max(0, offset - chunk.offset));
            const start = Math.max(offset, chunk.offset);
            offset = start + data.length;
            if (data.length > 0) yield { kind: "chunk", stream, offset: start, data };
          } else if (gap) {
            outage.over();
            offset = gap.toOffset;
            yield { kind: "gap", stream, start: gap.fromOffset, end: gap.toOffset };
          } else if (end?.outputLost) {
            throw new OutputLost("the sandbox has ended, and its output with it", { reason: "OUTPUT_LOST" });
          } else if (end && (!follow || end.state !== "TERMINAL_STATE_RUNNING")) {
            return;
          }
        }
      } catch (error) {
        if (!(error instanceof ProvostError) || !isOutage(error) || error instanceof Cancelled) throw error;
        if (error instanceof OutputLost) throw error;
        failure = error;
      }
      await outage.wait(failure, signal);
    }
  }

  /** The terminal as an object for `vscode.window.createTerminal({ name, pty })`. */
  pseudoterminal(options: PseudoterminalOptions = {}): Pseudoterminal {
    return new Pseudoterminal(this.#connection, this, this.#sessionId, options);
  }

  /** The output that the gateway keeps, as text. */
  async output(stream: Stream = "stdout"): Promise<Retained> {
    const request = { ...this.#named(), stream: streamName(stream), asText: true };
    const { text, truncated, nextOffset, outcome } = await this.#connection.call(OUTPUT, request);
    return { text, truncated, nextOffset, outcome: outcome ? outcomeOf(outcome) : undefined };
  }

  /** Waits for the end of the command. `DeadlineExceeded`: it still runs after `timeoutMs`. */
  async wait(options: CallOptions = {}): Promise<Outcome> {
    const outage = this.#connection.outage();
    for (;;) {
      const { outcome, state } = await this.#connection.call(WAIT, this.#named(), options);
      if (outcome) return outcomeOf(outcome);
      if (state === "TERMINAL_STATE_RELEASED") throw new NotFound("the terminal was released");
      // The gateway ends, and the command does not.
      await outage.wait(new GatewayUnavailable("the gateway has ended the call"), options.signal);
    }
  }

  /**
   * Writes to stdin, and closes it after `eof`. Returns how many bytes the command's stdin took.
   *
   * A write is never repeated: when the gateway goes away in the middle, it is unknown how much was written.
   */
  async write(data: string | Uint8Array, { eof = false } = {}): Promise<number> {
    const bytes = Buffer.from(data as Uint8Array);
    let written = 0;
    for (;;) {
      const piece = bytes.subarray(written, written + WRITE_BYTES_MAX);
      const isLast = written + piece.length === bytes.length;
      const request = { ...this.#named(), data: piece, eof: eof && isLast };
      const { writtenBytes } = await this.#connection.callOnce(WRITE, request);
      written += writtenBytes;
      if (isLast || writtenBytes < piece.length) return written;
    }
  }

  /** Sends a signal, such as `SIGINT`, to the process group of the main process. */
  async signal(name: string): Promise<void> {
    await this.#connection.callOnce(SIGNAL, { ...this.#named(), signal: name });
  }

  /** Starts to stop all processes: TERM, and KILL after the grace time. `wait` returns at their end. */
  async kill({ graceMs }: { graceMs?: number } = {}): Promise<void> {
    await this.#connection.call(KILL, { ...this.#named(), grace: durationOf(graceMs) });
  }

  /** Stops the command if it runs, and frees the terminal. Returns when nothing is left. */
  async release({ graceMs }: { graceMs?: number } = {}): Promise<void> {
    try {
      await this.#connection.call(RELEASE, { ...this.#named(), grace: durationOf(graceMs) });
    } catch (error) {
      // It has been released.
      if (!(error instanceof NotFound)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #named(): { terminalId: string; sessionId: string } {
    return { terminalId: this.id, sessionId: this.#sessionId };
  }
}

function streamName(stream: Stream): OutputStream {
  return stream === "stdout" ? "OUTPUT_STREAM_STDOUT" : "OUTPUT_STREAM_STDERR";
}
