// Lines of kept shells as values: what callers give, what happens while a line runs, and how it ends.

import type { GetShellResponse__Output } from "./generated/provost/v1/GetShellResponse.js";
import type { LineEnd__Output } from "./generated/provost/v1/LineEnd.js";
import { outcomeOf, type Chunk, type CommandOptions, type Gap, type Outcome } from "./types.js";

/** How a shell is kept. Limits are of its whole life. */
export interface ShellOptions extends Omit<CommandOptions, "split"> {
  /** bash, zsh, fish, dash or another; by default the profile's. */
  readonly program?: string;
  /** Of its terminal; 80 by default. */
  readonly columns?: number;
  /** Of its terminal; 24 by default. */
  readonly rows?: number;
  /** How much output the gateway keeps, up to the profile's maximum. */
  readonly outputByteLimit?: number;
  /** How long the call may take, the wait for an approval included. */
  readonly timeoutMs?: number;
}

/** How a line runs in a kept shell. */
export interface LineOptions {
  /** Whether the line waits for the lines before it; else it is refused while one runs (`SHELL_BUSY`). */
  readonly queue?: boolean;
  /** What happens if a rule asks a person: the call waits, or throws `ApprovalRequired`. */
  readonly onAsk?: "wait" | "refuse";
  /** If the shell's marks are missing: how long it must wait for input, without output, to count as idle. */
  readonly quietLimitMs?: number;
  readonly signal?: AbortSignal;
}

/** How a line runs to its end. */
export interface RunLineOptions extends LineOptions {
  /** Gets each piece of output as it comes. */
  readonly onOutput?: (chunk: Chunk) => void;
  /** How much output the result has; of longer output it has the tail. */
  readonly keepBytes?: number;
}

/**
 * How the end of a line was found. `CONFIRMED`: the shell has answered a question that was asked after the line. `QUIET`: the shell
 * waits for input and nothing more came, so the line is over, or is a `read`. `SHELL_ENDED`: the terminal has ended with the shell.
 */
export type LineEnding = "UNSPECIFIED" | "CONFIRMED" | "QUIET" | "SHELL_ENDED";

/** What makes the answer to a line doubtful. */
export type LineDoubt =
  | "UNSPECIFIED"
  /** The shell's marks of the line's start or end did not come. */
  | "MARKS_MISSING"
  /** Marks came that the shell cannot have written. */
  | "MARKS_FALSE"
  /** The shell's process executes another program. */
  | "SHELL_REPLACED"
  /** A program took the whole screen: the output is not text. */
  | "FULL_SCREEN"
  /** Output was overwritten before it was read. */
  | "OUTPUT_LOST";

/** The end of a line. What it says is what the shell says, which a line can make say anything. */
export interface LineEnd {
  readonly ending: LineEnding;
  /** Absent: unknown. */
  readonly exitCode: number | undefined;
  /** Its output in the terminal's: from `start` up to, but not with, `end`. */
  readonly start: number;
  readonly end: number;
  /** Empty: nothing is doubtful. */
  readonly doubts: readonly LineDoubt[];
  /** Whether the shell's marks of the line's start and end came. */
  readonly marksSeen: boolean;
  /** The shell's directory; absent: unknown. */
  readonly cwd: string | undefined;
  /** With `SHELL_ENDED`. */
  readonly outcome: Outcome | undefined;
}

/** What happens while a line runs, in order. `lineId` is for `writeLine`. */
export type LineEvent =
  | { readonly kind: "started"; readonly lineId: string; readonly offset: number }
  | Chunk
  | Gap
  | { readonly kind: "waits"; readonly lineId: string }
  | { readonly kind: "end"; readonly end: LineEnd };

/** A line that is over, and its output. */
export interface LineResult {
  readonly end: LineEnd;
  /** As in `end`. */
  readonly exitCode: number | undefined;
  /** As the terminal has it, with `\r\n` at the end of lines; its tail if it was longer than `keepBytes`. */
  readonly output: Buffer;
  /** The output as programs wrote it: with `\n` at the end of lines. */
  readonly text: string;
  /** Whether `output` is a tail, or has a gap. */
  readonly truncated: boolean;
}

/** What a kept shell does. `IDLE`: it is at its prompt. */
export type ShellActivity = "UNSPECIFIED" | "IDLE" | "BUSY" | "WAITING_FOR_INPUT" | "ENDED";

/** A kept shell at this moment. */
export interface ShellStatus {
  readonly activity: ShellActivity;
  /** The directory that it named last; absent: it was not asked. */
  readonly cwd: string | undefined;
  /** The line that runs. */
  readonly lineId: string | undefined;
  /** How many lines wait for their turn. */
  readonly queuedLines: number;
}

export function lineEndOf(message: LineEnd__Output): LineEnd {
  const doubts = message.doubts.map((doubt) => doubt.replace("LINE_DOUBT_", "") as LineDoubt);
  return {
    ending: message.ending.replace("LINE_ENDING_", "") as LineEnding,
    exitCode: message.exitStatus,
    start: message.startOffset,
    end: message.endOffset,
    doubts,
    marksSeen: !doubts.includes("MARKS_MISSING"),
    cwd: message.cwd || undefined,
    outcome: message.outcome ? outcomeOf(message.outcome) : undefined,
  };
}

export function shellStatusOf({ activity, cwd, lineId, queuedLines }: GetShellResponse__Output): ShellStatus {
  return {
    activity: activity.replace("SHELL_ACTIVITY_", "") as ShellActivity,
    cwd: cwd || undefined,
    lineId: lineId || undefined,
    queuedLines,
  };
}
