// A shell that is kept, and runs line after line.
//
// A line is never sent twice: when the gateway goes away in the middle, the line goes on in its shell, and how it ends is not
// known here.

import type { CallOptions, Connection } from "./connection.js";
import { Cancelled, GatewayUnavailable, ProvostError, isOutage } from "./errors.js";
import type { GetShellRequest } from "./generated/provost/v1/GetShellRequest.js";
import type { GetShellResponse__Output } from "./generated/provost/v1/GetShellResponse.js";
import type { InterruptLineRequest } from "./generated/provost/v1/InterruptLineRequest.js";
import type { RunLineRequest } from "./generated/provost/v1/RunLineRequest.js";
import type { RunLineResponse__Output } from "./generated/provost/v1/RunLineResponse.js";
import type { WriteLineInputRequest } from "./generated/provost/v1/WriteLineInputRequest.js";
import {
  lineEndOf,
  shellStatusOf,
  type LineEvent,
  type LineOptions,
  type LineResult,
  type RunLineOptions,
  type ShellStatus,
} from "./lines.js";
import { Tail } from "./tail.js";
import { Terminal } from "./terminal.js";
import { durationOf } from "./types.js";
import { method } from "./wire.js";

const RUN_LINE = method<RunLineRequest, RunLineResponse__Output>("Terminals", "RunLine");
const WRITE_LINE = method<WriteLineInputRequest, object>("Terminals", "WriteLineInput");
const INTERRUPT = method<InterruptLineRequest, object>("Terminals", "InterruptLine");
const GET_SHELL = method<GetShellRequest, GetShellResponse__Output>("Terminals", "GetShell");

/** Of the output of `runLine`, unless `keepBytes` says otherwise. */
const KEEP_LINE_BYTES = 16 << 20;

/** A kept shell: a terminal in which lines run, one after the other. Directory, variables and functions stay. */
export class Shell extends Terminal {
  readonly #connection: Connection;
  readonly #named: { readonly terminalId: string; readonly sessionId: string };

  /** @internal */
  constructor(connection: Connection, sessionId: string, id: string) {
    super(connection, sessionId, id);
    this.#connection = connection;
    this.#named = { terminalId: id, sessionId };
  }

  /**
   * Runs a line: its start, its output as it comes, that it waits for input, one end.
   *
   * When the loop over the events is left early, the line goes on: `interrupt` ends it.
   */
  async *streamLine(line: string, options: LineOptions = {}): AsyncGenerator<LineEvent, void, void> {
    const { queue = false, onAsk, quietLimitMs, signal } = options;
    const request: RunLineRequest = {
      ...this.#named,
      line,
      whenBusy: queue ? "WHEN_BUSY_QUEUE" : "WHEN_BUSY_REFUSE",
      onAsk: onAsk === "refuse" ? "ON_ASK_REFUSE" : "ON_ASK_WAIT",
      quietLimit: durationOf(quietLimitMs),
    };
    let lineId = "";
    try {
      for await (const { started, chunk, gap, waits, end } of this.#connection.stream(RUN_LINE, request, signal)) {
        if (started) {
          lineId = started.lineId;
          yield { kind: "started", lineId, offset: started.startOffset };
        } else if (chunk) {
          yield { kind: "chunk", stream: "stdout", offset: chunk.offset, data: chunk.data };
        } else if (gap) {
          yield { kind: "gap", stream: "stdout", start: gap.fromOffset, end: gap.toOffset };
        } else if (waits) {
          yield { kind: "waits", lineId };
        } else if (end) {
          yield { kind: "end", end: lineEndOf(end) };
          return;
        }
      }
    } catch (error) {
      if (!(error instanceof ProvostError) || !isOutage(error) || error instanceof Cancelled) throw error;
      throw new GatewayUnavailable(error.message, error);
    }
    throw new GatewayUnavailable("the gateway has ended the stream");
  }

  /** Runs a line to its end. When `signal` cancels the call, the line is interrupted. */
  async runLine(line: string, options: RunLineOptions = {}): Promise<LineResult> {
    const { onOutput, keepBytes = KEEP_LINE_BYTES, ...rest } = options;
    const tail = new Tail(keepBytes);
    let isRunning = false;
    let hasGap = false;
    try {
      for await (const event of this.streamLine(line, rest)) {
        isRunning = event.kind !== "end";
        if (event.kind === "chunk") {
          onOutput?.(event);
          tail.push(event.data);
        } else if (event.kind === "gap") {
          hasGap = true;
        } else if (event.kind === "end") {
          const output = tail.bytes();
          return {
            end: event.end,
            exitCode: event.end.exitCode,
            output,
            text: output.toString().replaceAll("\r\n", "\n"),
            truncated: hasGap || tail.isCut,
          };
        }
      }
    } catch (error) {
      // Nobody waits for the line any more.
      const isLeft = error instanceof Cancelled || !(error instanceof ProvostError);
      if (isRunning && isLeft) await this.interrupt();
      throw error;
    }
    throw new Error("a line ends with an end or with an error");
  }

  /** Writes to the program that a line runs: what a person would type, with `\r` for Enter. */
  async writeLine(lineId: string, data: string | Uint8Array, { eof = false } = {}): Promise<void> {
    const bytes = Buffer.from(data as Uint8Array);
    await this.#connection.callOnce(WRITE_LINE, { ...this.#named, lineId, data: bytes, eof });
  }

  /** Does what Ctrl-C does: sends SIGINT to what runs in the foreground of the shell. */
  async interrupt(): Promise<void> {
    await this.#connection.callOnce(INTERRUPT, this.#named);
  }

  /** What the shell does now. */
  async status(options: CallOptions = {}): Promise<ShellStatus> {
    return shellStatusOf(await this.#connection.call(GET_SHELL, this.#named, options));
  }
}
