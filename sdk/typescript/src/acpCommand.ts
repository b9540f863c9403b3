// A command of an editor's agent: in a terminal of its own, or as a line of its session's kept shell.

import { setTimeout as sleep } from "node:timers/promises";
import { StringDecoder } from "node:string_decoder";

import { DeadlineExceeded, GatewayUnavailable, NotFound } from "./errors.js";
import type { LineDoubt, LineEnd, LineEvent } from "./lines.js";
import type { Shell } from "./shell.js";
import { Tail } from "./tail.js";
import type { Terminal } from "./terminal.js";
import type { Outcome } from "./types.js";

/** What is kept of a line's output at most, whatever its request says. */
const OUTPUT_BYTES_MAX = 64 << 20;
/** How long an interrupted line may go on before its shell is released with it, unless the options say otherwise. */
const INTERRUPT_GRACE_MS = 5_000;

/** How a line runs. */
export interface LineCommandOptions {
  readonly outputByteLimit: number;
  readonly queue: boolean;
  readonly quietLimitMs: number | undefined;
  readonly killGraceMs: number | undefined;
}

export interface ExitStatus {
  exitCode?: number | null;
  signal?: string | null;
  /** Of a line in a kept shell: what makes its end doubtful. Not set: nothing. */
  doubts?: readonly LineDoubt[];
}

export interface CommandOutput {
  readonly text: string;
  /** Whether any output was dropped before it. */
  readonly truncated: boolean;
  /** Of the byte after the last one. */
  readonly nextOffset: number;
  readonly exitStatus: ExitStatus | undefined;
}

/** What the adapter does with a command. */
export interface AdapterCommand {
  readonly id: string;
  output(): Promise<CommandOutput>;
  /** `DeadlineExceeded`: it still runs after `timeoutMs`. */
  wait(options: { timeoutMs?: number }): Promise<ExitStatus>;
  kill(): Promise<void>;
  release(): Promise<void>;
}

/** A command with a terminal of its own. */
export class TerminalCommand implements AdapterCommand {
  readonly #terminal: Terminal;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  get id(): string {
    return this.#terminal.id;
  }

  async output(): Promise<CommandOutput> {
    const { text, truncated, nextOffset, outcome } = await this.#terminal.output();
    return { text, truncated, nextOffset, exitStatus: outcome && statusOf(outcome) };
  }

  async wait(options: { timeoutMs?: number }): Promise<ExitStatus> {
    return statusOf(await this.#terminal.wait(options));
  }

  async kill(): Promise<void> {
    await this.#terminal.kill();
  }

  async release(): Promise<void> {
    await this.#terminal.release();
  }
}

/** A line of a kept shell. The shell stays. */
export class LineCommand implements AdapterCommand {
  readonly id: string;
  readonly #shell: Shell;
  readonly #lineId: string;
  readonly #tail: Tail;
  readonly #over: Promise<ExitStatus>;
  readonly #killGraceMs: number;
  #nextOffset: number;
  #hasGap = false;
  #exitStatus: ExitStatus | undefined;

  /** Returns when the shell has begun the line. */
  static async begin(shell: Shell, line: string, options: LineCommandOptions): Promise<LineCommand> {
    const { queue, quietLimitMs } = options;
    const events = shell.streamLine(line, { queue, ...(quietLimitMs === undefined ? {} : { quietLimitMs }) });
    const { value: first } = await events.next();
    if (first?.kind !== "started") throw new GatewayUnavailable("the gateway has ended the stream");
    return new LineCommand(shell, first.lineId, first.offset, events, options);
  }

  private constructor(
    shell: Shell,
    lineId: string,
    offset: number,
    events: AsyncGenerator<LineEvent, void, void>,
    { outputByteLimit, killGraceMs = INTERRUPT_GRACE_MS }: LineCommandOptions,
  ) {
    this.#killGraceMs = killGraceMs;
    this.id = `${shell.id}-${lineId}`;
    this.#shell = shell;
    this.#lineId = lineId;
    this.#nextOffset = offset;
    this.#tail = new Tail(Math.min(outputByteLimit, OUTPUT_BYTES_MAX));
    this.#over = this.#follow(events);
    // Who waits is told.
    this.#over.catch(() => {});
  }

  async #follow(events: AsyncGenerator<LineEvent, void, void>): Promise<ExitStatus> {
    for await (const event of events) {
      if (event.kind === "chunk") {
        this.#nextOffset = event.offset + event.data.length;
        this.#tail.push(event.data);
      } else if (event.kind === "gap") {
        this.#nextOffset = event.end;
        this.#hasGap = true;
      } else if (event.kind === "end") {
        return (this.#exitStatus = statusOfLine(event.end));
      }
    }
    throw new GatewayUnavailable("the gateway has ended the stream");
  }

  async output(): Promise<CommandOutput> {
    let bytes = this.#tail.bytes();
    if (this.#tail.isCut) {
      // The rest of a character that was cut.
      const first = bytes.findIndex((byte) => (byte & 0xc0) !== 0x80);
      bytes = bytes.subarray(Math.max(0, first));
    }
    const decoder = new StringDecoder("utf8");
    const text = decoder.write(bytes) + (this.#exitStatus ? decoder.end() : "");
    return {
      text: text.replaceAll("\r\n", "\n"),
      truncated: this.#tail.isCut || this.#hasGap,
      nextOffset: this.#nextOffset,
      exitStatus: this.#exitStatus,
    };
  }

  async wait({ timeoutMs }: { timeoutMs?: number }): Promise<ExitStatus> {
    if (timeoutMs === undefined) return this.#over;
    const timer = new AbortController();
    try {
      return await Promise.race([this.#over, this.#deadline(timeoutMs, timer.signal)]);
    } finally {
      timer.abort();
    }
  }

  async #deadline(timeoutMs: number, signal: AbortSignal): Promise<never> {
    await sleep(timeoutMs, undefined, { signal }).catch(() => {});
    throw new DeadlineExceeded("the line still runs");
  }

  /** Interrupts the line, as Ctrl-C does. */
  async kill(): Promise<void> {
    if (this.#exitStatus) return;
    const { lineId } = await this.#shell.status();
    if (lineId === this.#lineId) await this.#shell.interrupt();
  }

  /** Interrupts the line if it runs. If it goes on all the same, its shell is released, and all that runs in it is stopped. */
  async release(): Promise<void> {
    if (this.#exitStatus) return;
    try {
      await this.kill();
      await this.wait({ timeoutMs: this.#killGraceMs });
    } catch (error) {
      if (error instanceof NotFound) return;
      await this.#shell.release();
    }
  }
}

/** A command as one line for a shell. */
export function lineOf(command: string, args: readonly string[], cwd: string | undefined): string {
  const line = args.length > 0 ? [command, ...args].map(quoted).join(" ") : command;
  return cwd === undefined ? line : `cd -- ${quoted(cwd)} && {\n${line}\n}`;
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

function statusOf({ exitCode, signal }: Outcome): ExitStatus {
  return { exitCode: exitCode ?? null, signal: signal ?? null };
}

function statusOfLine({ exitCode, outcome, doubts }: LineEnd): ExitStatus {
  const status = { exitCode: exitCode ?? null, signal: outcome?.signal ?? null };
  return doubts.length > 0 ? { ...status, doubts } : status;
}
