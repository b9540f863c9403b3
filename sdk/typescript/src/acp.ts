// The five terminal callbacks of the Agent Client Protocol, for editors and their extensions:
//
//     const { callbacks, adapter } = createTerminalCallbacks({ roots: [workspaceFolder] });
//
// `callbacks` has the names of the protocol's official SDK. Each ACP session gets a session of the gateway.

import { DeadlineExceeded } from "./errors.js";
import { Gateway, type GatewayOptions } from "./gateway.js";
import type { Session } from "./session.js";
import type { Terminal } from "./terminal.js";
import type { CommandOptions, Outcome, SessionOptions } from "./types.js";

/** Of a terminal's output, unless the request says otherwise: its tail. */
export const DEFAULT_OUTPUT_BYTE_LIMIT = 64 << 10;
/** How long a wait takes at most. */
export const DEFAULT_WAIT_TIMEOUT_MS = 30_000;
/** A wait ends when the command has written nothing for this long. */
export const DEFAULT_IDLE_TIMEOUT_MS = 5_000;

export interface CreateTerminalRequest {
  sessionId: string;
  command: string;
  /** Without arguments, `command` is a line for the shell. */
  args?: string[];
  env?: { name: string; value: string }[];
  cwd?: string | null;
  outputByteLimit?: number | null;
}

export interface TerminalRequest {
  sessionId?: string;
  terminalId: string;
}

export interface WaitRequest extends TerminalRequest {
  /** In place of the adapter's; `Infinity`: until the command has ended. */
  timeoutMs?: number;
  idleTimeoutMs?: number;
}

export interface ExitStatus {
  exitCode?: number | null;
  signal?: string | null;
}

export interface WaitResponse extends ExitStatus {
  /** Why there is no exit status: the command still runs. */
  stillRunning?: "timeout" | "idle";
}

export interface OutputResponse {
  output: string;
  /** Whether the beginning of the output was dropped. */
  truncated: boolean;
  exitStatus?: ExitStatus;
}

export interface AdapterOptions extends GatewayOptions {
  /** The directories that commands may write to, or a function that knows them for each ACP session. */
  readonly roots: readonly string[] | ((sessionId: string) => readonly string[]);
  /** A gateway to use, which is not closed; else one is connected to. */
  readonly gateway?: Gateway;
  readonly session?: SessionOptions;
  /** For each command, such as limits. */
  readonly command?: Pick<CommandOptions, "timeLimitMs" | "idleLimitMs" | "killGraceMs" | "profile">;
  readonly outputByteLimit?: number;
  readonly waitTimeoutMs?: number;
  readonly idleTimeoutMs?: number;
}

/** The callbacks, by the names of the protocol's SDK. */
export interface TerminalCallbacks {
  createTerminal(request: CreateTerminalRequest): Promise<{ terminalId: string }>;
  terminalOutput(request: TerminalRequest): Promise<OutputResponse>;
  waitForTerminalExit(request: WaitRequest): Promise<WaitResponse>;
  killTerminal(request: TerminalRequest): Promise<void>;
  releaseTerminal(request: TerminalRequest): Promise<void>;
}

/** All that an editor needs, in one call. */
export function createTerminalCallbacks(options: AdapterOptions): {
  callbacks: TerminalCallbacks;
  adapter: TerminalAdapter;
} {
  const adapter = new TerminalAdapter(options);
  const callbacks: TerminalCallbacks = {
    createTerminal: (request) => adapter.createTerminal(request),
    terminalOutput: (request) => adapter.getOutput(request),
    waitForTerminalExit: (request) => adapter.waitForExit(request),
    killTerminal: (request) => adapter.killCommand(request),
    releaseTerminal: (request) => adapter.release(request),
  };
  return { callbacks, adapter };
}

interface Created {
  readonly sessionId: string;
  readonly terminal: Terminal;
}

/** Terminals of ACP sessions. */
export class TerminalAdapter implements AsyncDisposable {
  readonly #options: AdapterOptions;
  readonly #gateway: Gateway;
  readonly #sessions = new Map<string, Promise<Session>>();
  readonly #terminals = new Map<string, Created>();

  constructor(options: AdapterOptions) {
    this.#options = options;
    this.#gateway = options.gateway ?? new Gateway(options);
  }

  async createTerminal(request: CreateTerminalRequest): Promise<{ terminalId: string }> {
    const { sessionId, command, args = [] } = request;
    const session = await this.#session(sessionId);
    const limit = request.outputByteLimit ?? this.#options.outputByteLimit ?? DEFAULT_OUTPUT_BYTE_LIMIT;
    const terminal = await session.create(args.length > 0 ? [command, ...args] : { shellLine: command }, {
      ...this.#options.command,
      env: Object.fromEntries((request.env ?? []).map(({ name, value }) => [name, value])),
      ...(request.cwd ? { cwd: request.cwd } : {}),
      outputByteLimit: limit,
    });
    this.#terminals.set(terminal.id, { sessionId, terminal });
    return { terminalId: terminal.id };
  }

  async getOutput({ terminalId }: TerminalRequest): Promise<OutputResponse> {
    const { text, truncated, outcome } = await this.#find(terminalId).output();
    const response: OutputResponse = { output: text, truncated };
    if (outcome) response.exitStatus = statusOf(outcome);
    return response;
  }

  /** The exit status; without one if the command still runs when the time is over, or after an idle time. */
  async waitForExit(request: WaitRequest): Promise<WaitResponse> {
    const terminal = this.#find(request.terminalId);
    const timeoutMs = request.timeoutMs ?? this.#options.waitTimeoutMs ?? DEFAULT_WAIT_TIMEOUT_MS;
    const idleMs = request.idleTimeoutMs ?? this.#options.idleTimeoutMs ?? DEFAULT_IDLE_TIMEOUT_MS;
    const over = performance.now() + timeoutMs;
    let seen = (await terminal.output()).nextOffset;
    for (;;) {
      const left = Math.max(1, over - performance.now());
      const stepMs = Math.min(left, idleMs);
      try {
        return statusOf(await terminal.wait(Number.isFinite(stepMs) ? { timeoutMs: stepMs } : {}));
      } catch (error) {
        if (!(error instanceof DeadlineExceeded)) throw error;
      }
      if (performance.now() >= over) return { stillRunning: "timeout" };
      const { nextOffset, outcome } = await terminal.output();
      if (outcome) return statusOf(outcome);
      if (nextOffset === seen) return { stillRunning: "idle" };
      seen = nextOffset;
    }
  }

  /** Stops all processes of the command; the terminal stays. */
  async killCommand({ terminalId }: TerminalRequest): Promise<void> {
    await this.#find(terminalId).kill();
  }

  async release({ terminalId }: TerminalRequest): Promise<void> {
    await this.#find(terminalId).release();
    this.#terminals.delete(terminalId);
  }

  getSessionTerminalIds(sessionId: string): string[] {
    return [...this.#terminals].filter(([, created]) => created.sessionId === sessionId).map(([id]) => id);
  }

  /** Ends an ACP session with all its commands. */
  async disposeSession(sessionId: string): Promise<void> {
    for (const id of this.getSessionTerminalIds(sessionId)) this.#terminals.delete(id);
    const session = this.#sessions.get(sessionId);
    this.#sessions.delete(sessionId);
    await (await session)?.close();
  }

  /** Ends all sessions. */
  async dispose(): Promise<void> {
    await Promise.all([...this.#sessions.keys()].map((id) => this.disposeSession(id)));
    if (!this.#options.gateway) this.#gateway.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.dispose();
  }

  #session(id: string): Promise<Session> {
    const known = this.#sessions.get(id);
    if (known) return known;
    const { roots, session } = this.#options;
    const opened = this.#gateway.openSession(typeof roots === "function" ? roots(id) : roots, session);
    this.#sessions.set(id, opened);
    // The next terminal tries again.
    opened.catch(() => this.#sessions.delete(id));
    return opened;
  }

  #find(terminalId: string): Terminal {
    const created = this.#terminals.get(terminalId);
    if (!created) throw new Error(`there is no terminal ${terminalId}`);
    return created.terminal;
  }
}

function statusOf({ exitCode, signal }: Outcome): ExitStatus {
  return { exitCode: exitCode ?? null, signal: signal ?? null };
}
