// A session: its commands share a sandbox.

import { randomUUID } from "node:crypto";

import type { Connection } from "./connection.js";
import { NotFound, OutputLost } from "./errors.js";
import type { CloseSessionRequest } from "./generated/provost/v1/CloseSessionRequest.js";
import type { CreateTerminalRequest } from "./generated/provost/v1/CreateTerminalRequest.js";
import type { CreateTerminalResponse__Output } from "./generated/provost/v1/CreateTerminalResponse.js";
import type { ListTerminalsRequest } from "./generated/provost/v1/ListTerminalsRequest.js";
import type { ListTerminalsResponse__Output } from "./generated/provost/v1/ListTerminalsResponse.js";
import type { ShellOptions } from "./lines.js";
import { merged } from "./merged.js";
import { Shell } from "./shell.js";
import { Tail } from "./tail.js";
import { Terminal } from "./terminal.js";
import {
  durationOf,
  envOf,
  terminalOf,
  type Chunk,
  type Command,
  type CommandOptions,
  type CreateOptions,
  type Exit,
  type Result,
  type RunOptions,
  type Stream,
  type TerminalInfo,
} from "./types.js";
import { method } from "./wire.js";

const CLOSE = method<CloseSessionRequest, object>("Sessions", "CloseSession");
const CREATE = method<CreateTerminalRequest, CreateTerminalResponse__Output>("Terminals", "CreateTerminal");
const LIST = method<ListTerminalsRequest, ListTerminalsResponse__Output>("Terminals", "ListTerminals");

/** What the gateway keeps for `run` and `stream`: more than can be on the way. */
const RING_BYTES = 4 << 20;
/** Of the output of `run`, unless `keepBytes` says otherwise. */
const KEEP_BYTES = 64 << 20;

export class Session implements AsyncDisposable {
  readonly #connection: Connection;
  /** Such as `sess_01K...`. */
  readonly id: string;

  /** @internal */
  constructor(connection: Connection, id: string) {
    this.#connection = connection;
    this.id = id;
  }

  /** Starts a command. */
  async create(command: Command, options: CreateOptions = {}): Promise<Terminal> {
    const request: CreateTerminalRequest = {
      sessionId: this.id,
      requestId: randomUUID(),
      ...named(command),
      env: envOf(options.env),
      cwd: options.cwd ?? "",
      profile: options.profile ?? "",
      outputMode: options.split ? "OUTPUT_MODE_SPLIT" : "OUTPUT_MODE_MERGED",
      stdinMode: options.stdin ? "STDIN_MODE_OPEN" : "STDIN_MODE_CLOSED",
      overflow: options.waitForReader ? "OVERFLOW_BLOCK" : "OVERFLOW_DROP_OLDEST",
      timeLimit: durationOf(options.timeLimitMs),
      idleLimit: durationOf(options.idleLimitMs),
      killGrace: durationOf(options.killGraceMs),
      labels: { ...options.labels },
      onAsk: options.onAsk === "refuse" ? "ON_ASK_REFUSE" : "ON_ASK_WAIT",
      umask: options.umask ?? process.umask(),
    };
    if (options.pty) {
      request.pty = options.pty;
      request.stdinMode = "STDIN_MODE_OPEN";
    }
    if (options.outputByteLimit !== undefined) request.outputByteLimit = options.outputByteLimit;
    const { timeoutMs, signal } = options;
    const { terminal } = await this.#connection.call(CREATE, request, { timeoutMs, signal });
    return this.terminal(terminal!.id);
  }

  /** Keeps a shell that runs line after line. */
  async openShell(options: ShellOptions = {}): Promise<Shell> {
    const request: CreateTerminalRequest = {
      sessionId: this.id,
      requestId: randomUUID(),
      env: envOf(options.env),
      cwd: options.cwd ?? "",
      profile: options.profile ?? "",
      timeLimit: durationOf(options.timeLimitMs),
      idleLimit: durationOf(options.idleLimitMs),
      killGrace: durationOf(options.killGraceMs),
      labels: { ...options.labels },
      onAsk: options.onAsk === "refuse" ? "ON_ASK_REFUSE" : "ON_ASK_WAIT",
      pty: { columns: options.columns ?? 80, rows: options.rows ?? 24 },
      keptShell: {},
    };
    if (options.program) request.program = options.program;
    if (options.outputByteLimit !== undefined) request.outputByteLimit = options.outputByteLimit;
    const { timeoutMs, signal } = options;
    const { terminal } = await this.#connection.call(CREATE, request, { timeoutMs, signal });
    return this.shell(terminal!.id);
  }

  /** A kept shell that exists. */
  shell(id: string): Shell {
    return new Shell(this.#connection, this.id, id);
  }

  /** A terminal that exists. */
  terminal(id: string): Terminal {
    return new Terminal(this.#connection, this.id, id);
  }

  /** The terminals of this session, oldest first. */
  async terminals(): Promise<TerminalInfo[]> {
    const found: TerminalInfo[] = [];
    let pageToken = "";
    do {
      const page = await this.#connection.call(LIST, { sessionId: this.id, pageToken });
      found.push(...page.terminals.map(terminalOf));
      pageToken = page.nextPageToken;
    } while (pageToken);
    return found;
  }

  /**
   * Runs a command: its output as it comes, all of it, and one exit. The terminal is then released.
   *
   * The command waits for a slow reader. When the loop over the events is left early, the command is stopped.
   */
  async *stream(command: Command, options: CommandOptions = {}): AsyncGenerator<Chunk | Exit, void, void> {
    const terminal = await this.create(command, {
      ...options,
      waitForReader: true,
      outputByteLimit: RING_BYTES,
    });
    let outcome;
    try {
      const { signal } = options;
      const streams: Stream[] = options.split ? ["stdout", "stderr"] : ["stdout"];
      for await (const piece of merged(streams.map((stream) => terminal.attach({ stream, signal })))) {
        if (piece.kind === "gap") {
          throw new OutputLost(`${piece.end - piece.start} bytes were dropped at ${piece.start}`);
        }
        yield piece;
      }
      outcome = await terminal.wait({ signal });
    } finally {
      await terminal.release();
    }
    yield { kind: "exit", outcome };
  }

  /** Runs a command to its end. */
  async run(command: Command, options: RunOptions = {}): Promise<Result> {
    const { onOutput, keepBytes = KEEP_BYTES, ...rest } = options;
    const tails = { stdout: new Tail(keepBytes), stderr: new Tail(keepBytes) };
    for await (const event of this.stream(command, rest)) {
      if (event.kind === "chunk") {
        onOutput?.(event);
        tails[event.stream].push(event.data);
        continue;
      }
      const { outcome } = event;
      const { stdout, stderr } = tails;
      const truncated = stdout.isCut || stderr.isCut;
      return { outcome, exitCode: outcome.exitCode, output: stdout.bytes(), stderr: stderr.bytes(), truncated };
    }
    throw new Error("a stream ends with an exit or with an error");
  }

  /** Stops and releases all terminals. Returns when nothing is left. */
  async close(): Promise<void> {
    try {
      await this.#connection.call(CLOSE, { sessionId: this.id });
    } catch (error) {
      // It has been closed.
      if (!(error instanceof NotFound)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function named(command: Command): CreateTerminalRequest {
  if ("shellLine" in command) {
    const { shellLine } = command;
    return typeof shellLine === "string" ? { shellLine } : { shellLineBytes: Buffer.from(shellLine) };
  }
  const [program, ...args] = command;
  const texts = args.filter((argument) => typeof argument === "string");
  return {
    ...(typeof program === "string" ? { program } : { programBytes: Buffer.from(program) }),
    ...(texts.length === args.length ? { args: texts } : { argsBytes: args.map((argument) => Buffer.from(argument)) }),
  };
}
