// What callers give and the gateway answers, as values.

import type { Approval__Output } from "./generated/provost/v1/Approval.js";
import type { Duration as DurationMessage } from "./generated/google/protobuf/Duration.js";
import type { Outcome__Output } from "./generated/provost/v1/Outcome.js";
import type { Terminal__Output } from "./generated/provost/v1/Terminal.js";

/** `stdout` is also all output where stdout and stderr are one stream. */
export type Stream = "stdout" | "stderr";

/** What ended a command. */
export type Cause =
  | "UNSPECIFIED"
  | "EXITED"
  | "SIGNALLED"
  | "KILLED"
  | "TIME_LIMIT"
  | "IDLE_LIMIT"
  | "MEMORY_LIMIT"
  | "SANDBOX_LOST"
  | "SHUTDOWN";

/** A size in characters, as `vscode.TerminalDimensions`. */
export interface Dimensions {
  readonly columns: number;
  readonly rows: number;
}

/** How a session is opened. */
export interface SessionOptions {
  /** The default working directory; else the first root. */
  readonly cwd?: string;
  /** The default environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  /** The default profile. */
  readonly profile?: string;
  /** Whether the gateway closes the session when this process has ended; true by default. */
  readonly endsWithProcess?: boolean;
}

/** How a command runs. Limits are effective if they are shorter than the profile's. */
export interface CommandOptions {
  /** What the files that it makes are not open for; this process's by default. */
  umask?: number;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Whether stdout and stderr are two streams. */
  readonly split?: boolean;
  /** How long the command may run. */
  readonly timeLimitMs?: number;
  /** How long the command may write no output. */
  readonly idleLimitMs?: number;
  /** The time between TERM and KILL. */
  readonly killGraceMs?: number;
  readonly profile?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** What happens if a rule asks a person: the call waits, or throws `ApprovalRequired`. */
  readonly onAsk?: "wait" | "refuse";
  /** Cancels the call. A command that runs for it is stopped. */
  readonly signal?: AbortSignal;
}

/** How a terminal is created. */
export interface CreateOptions extends CommandOptions {
  /** Whether `write` can be used. */
  readonly stdin?: boolean;
  /** The size of a pseudo-terminal for the command, which has one output stream and takes what `write` types; none by default. */
  readonly pty?: Dimensions;
  /** Whether the command waits when its output is not read. */
  readonly waitForReader?: boolean;
  /** How much output the gateway keeps of each stream, up to the profile's maximum. */
  readonly outputByteLimit?: number;
  /** How long the call may take, the wait for an approval included. */
  readonly timeoutMs?: number;
}

/** How a command runs to its end. */
export interface RunOptions extends CommandOptions {
  /** Gets each piece of output as it comes. */
  readonly onOutput?: (chunk: Chunk) => void;
  /** How much of each stream the result has; of longer output it has the tail. */
  readonly keepBytes?: number;
}

/** A program with its arguments, or a line for the shell. */
export type Command = readonly [program: Text, ...args: Text[]] | { readonly shellLine: Text };
/** A text, or the bytes of one that is no UTF-8. */
export type Text = string | Uint8Array;

/** How a command ended. */
export interface Outcome {
  /** Absent if a signal ended the command, or if the end is unknown. */
  readonly exitCode: number | undefined;
  /** Such as `SIGKILL`. */
  readonly signal: string | undefined;
  readonly cause: Cause;
  /** Processes that the command had left running when it ended by itself: they ended with it. */
  readonly endedProcesses: number;
  /** The names of their programs, each once, at most 8. */
  readonly endedCommands: readonly string[];
  /** The whole message, with usage and changes of the workspace. */
  readonly message: Outcome__Output;
}

export interface Chunk {
  readonly kind: "chunk";
  readonly stream: Stream;
  /** In bytes from the start of the stream. */
  readonly offset: number;
  readonly data: Buffer;
}

/** Bytes that were dropped before they were read: those from `start` up to, but not with, `end`. */
export interface Gap {
  readonly kind: "gap";
  readonly stream: Stream;
  readonly start: number;
  readonly end: number;
}

/** The last event of a command. */
export interface Exit {
  readonly kind: "exit";
  readonly outcome: Outcome;
}

/** A command that has ended, and its output. */
export interface Result {
  readonly outcome: Outcome;
  readonly exitCode: number | undefined;
  /** All output, or that of stdout with `split`; its tail if it was longer than `keepBytes`. */
  readonly output: Buffer;
  /** Empty without `split`. */
  readonly stderr: Buffer;
  /** Whether `output` or `stderr` is a tail. */
  readonly truncated: boolean;
}

/** A terminal as the gateway lists it. */
export interface TerminalInfo {
  readonly id: string;
  readonly sessionId: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Absent while the command runs. */
  readonly outcome: Outcome | undefined;
  readonly message: Terminal__Output;
}

/** A request that a person may decide. */
export interface Approval {
  readonly id: string;
  /** `PENDING`, `APPROVED`, `USED`, `DENIED`, `EXPIRED`, `WITHDRAWN` or `SUPERSEDED`. */
  readonly state: string;
  readonly sessionId: string;
  readonly principal: string;
  readonly command: string;
  readonly rule: string;
  readonly reason: string;
  readonly message: Approval__Output;
}

export function outcomeOf(message: Outcome__Output): Outcome {
  return {
    exitCode: message.end === "exitCode" ? message.exitCode : undefined,
    signal: message.end === "signal" ? message.signal : undefined,
    cause: message.cause.replace("EXIT_CAUSE_", "") as Cause,
    endedProcesses: message.endedProcesses,
    endedCommands: message.endedCommands,
    message,
  };
}

export function terminalOf(message: Terminal__Output): TerminalInfo {
  const { id, sessionId, command, args } = message;
  const outcome = message.outcome ? outcomeOf(message.outcome) : undefined;
  return { id, sessionId, command, args, outcome, message };
}

export function approvalOf(message: Approval__Output): Approval {
  const { id, sessionId, principal, rule, reason } = message;
  const state = message.state.replace("APPROVAL_STATE_", "");
  return { id, state, sessionId, principal, command: message.matchedCommand, rule, reason, message };
}

export function durationOf(milliseconds: number | undefined): DurationMessage | null {
  if (milliseconds === undefined) return null;
  const seconds = Math.floor(milliseconds / 1000);
  return { seconds, nanos: Math.round((milliseconds - seconds * 1000) * 1e6) };
}

export function envOf(env: Readonly<Record<string, string>> | undefined) {
  return Object.entries(env ?? {}).map(([name, value]) => ({ name, value }));
}
