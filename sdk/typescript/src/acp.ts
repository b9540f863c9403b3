// The five terminal callbacks of the Agent Client Protocol, for editors and their extensions:
//
//     const { callbacks, adapter } = createTerminalCallbacks({ roots: [workspaceFolder] });
//
// `callbacks` has the names of the protocol's official SDK. Each ACP session gets a session of the gateway, and on request one
// shell in which its commands run.

import { LineCommand, TerminalCommand, lineOf, type AdapterCommand, type ExitStatus } from "./acpCommand.js";
import { DeadlineExceeded, NotFound, ProvostError } from "./errors.js";
import { Gateway, type GatewayOptions } from "./gateway.js";
import type { ShellOptions } from "./lines.js";
import type { Session } from "./session.js";
import type { Shell } from "./shell.js";
import type { CommandOptions, SessionOptions } from "./types.js";

export type { ExitStatus } from "./acpCommand.js";

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
  /** For each command, such as limits. With `shell`, no limits: they are not a line's. */
  readonly command?: Pick<CommandOptions, "timeLimitMs" | "idleLimitMs" | "killGraceMs" | "profile">;
  /** Runs the commands of each ACP session in one kept shell, so that directory, variables and functions stay. */
  readonly shell?: boolean | KeptShellOptions;
  readonly outputByteLimit?: number;
  readonly waitTimeoutMs?: number;
  readonly idleTimeoutMs?: number;
}

export interface KeptShellOptions extends ShellOptions {
  /** What a command does while another one runs in the shell: it gets a terminal of its own (the default), waits, or is refused. */
  readonly whenBusy?: "ownTerminal" | "queue" | "refuse";
  /** If the shell's marks are missing: how long it must wait for input, without output, to count as idle; 5 s by default. */
  readonly quietLimitMs?: number;
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
  readonly command: AdapterCommand;
}

/** Terminals of ACP sessions. */
export class TerminalAdapter implements AsyncDisposable {
  readonly #options: AdapterOptions;
  readonly #gateway: Gateway;
  readonly #sessions = new Map<string, Promise<Session>>();
  readonly #shells = new Map<string, Promise<Shell>>();
  readonly #terminals = new Map<string, Created>();

  constructor(options: AdapterOptions) {
    const { timeLimitMs, idleLimitMs } = options.command ?? {};
    if (options.shell && (timeLimitMs !== undefined || idleLimitMs !== undefined)) {
      throw new TypeError("`command` has limits, which lines of a kept shell cannot have: use those of `shell`");
    }
    this.#options = options;
    this.#gateway = options.gateway ?? new Gateway(options);
  }

  async createTerminal(request: CreateTerminalRequest): Promise<{ terminalId: string }> {
    const { sessionId } = request;
    const session = await this.#session(sessionId);
    const limit = request.outputByteLimit ?? this.#options.outputByteLimit ?? DEFAULT_OUTPUT_BYTE_LIMIT;
    // Variables of one command would stay in a shell.
    const isLine = this.#options.shell && !request.env?.length;
    const line = isLine ? await this.#inShell(session, request, limit) : undefined;
    const command = line ?? (await this.#inTerminal(session, request, limit));
    this.#terminals.set(command.id, { sessionId, command });
    return { terminalId: command.id };
  }

  async #inTerminal(session: Session, request: CreateTerminalRequest, limit: number): Promise<AdapterCommand> {
    const { command, args = [], cwd } = request;
    const terminal = await session.create(args.length > 0 ? [command, ...args] : { shellLine: command }, {
      ...this.#options.command,
      env: Object.fromEntries((request.env ?? []).map(({ name, value }) => [name, value])),
      ...(cwd ? { cwd } : {}),
      outputByteLimit: limit,
    });
    return new TerminalCommand(terminal);
  }

  /** `undefined`: it cannot run in the shell, and a terminal of its own is wanted then. */
  async #inShell(
    session: Session,
    { sessionId, command, args = [], cwd }: CreateTerminalRequest,
    limit: number,
  ): Promise<AdapterCommand | undefined> {
    const { shell } = this.#options;
    const { whenBusy = "ownTerminal", quietLimitMs }: KeptShellOptions = typeof shell === "object" ? shell : {};
    const line = lineOf(command, args, cwd || undefined);
    const killGraceMs = this.#options.command?.killGraceMs;
    const options = { outputByteLimit: limit, queue: whenBusy === "queue", quietLimitMs, killGraceMs };
    for (let isFirst = true; ; isFirst = false) {
      const opening = this.#shell(sessionId, session);
      try {
        return await LineCommand.begin(await opening, line, options);
      } catch (error) {
        const reason = error instanceof ProvostError ? error.reason : "";
        const hasEnded = reason === "COMMAND_ENDED" || error instanceof NotFound;
        if (hasEnded && isFirst) {
          // A line has left the shell: the next one gets another.
          if (this.#shells.get(sessionId) === opening) this.#shells.delete(sessionId);
          await (await opening).release();
        } else if (reason === "SHELL_BUSY" && whenBusy === "ownTerminal") {
          return undefined;
        } else if (reason === "LINE_NEEDS_OTHER_TERMINAL") {
          return undefined;
        } else {
          throw error;
        }
      }
    }
  }

  async getOutput({ terminalId }: TerminalRequest): Promise<OutputResponse> {
    const { text, truncated, exitStatus } = await this.#find(terminalId).output();
    const response: OutputResponse = { output: text, truncated };
    if (exitStatus) response.exitStatus = exitStatus;
    return response;
  }

  /** The exit status; without one if the command still runs when the time is over, or after an idle time. */
  async waitForExit(request: WaitRequest): Promise<WaitResponse> {
    const command = this.#find(request.terminalId);
    const timeoutMs = request.timeoutMs ?? this.#options.waitTimeoutMs ?? DEFAULT_WAIT_TIMEOUT_MS;
    const idleMs = request.idleTimeoutMs ?? this.#options.idleTimeoutMs ?? DEFAULT_IDLE_TIMEOUT_MS;
    const over = performance.now() + timeoutMs;
    let seen = (await command.output()).nextOffset;
    for (;;) {
      const left = Math.max(1, over - performance.now());
      const stepMs = Math.min(left, idleMs);
      try {
        return await command.wait(Number.isFinite(stepMs) ? { timeoutMs: stepMs } : {});
      } catch (error) {
        if (!(error instanceof DeadlineExceeded)) throw error;
      }
      // Not asked of the clock: a deadline may pass a little before the time that it was made from.
      if (left <= idleMs) return { stillRunning: "timeout" };
      const { nextOffset, exitStatus } = await command.output();
      if (exitStatus) return exitStatus;
      if (nextOffset === seen) return { stillRunning: "idle" };
      seen = nextOffset;
    }
  }

  /** Stops all processes of the command, or interrupts it as Ctrl-C does if it is a line of the kept shell; the terminal stays. */
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

  /** The kept shell of an ACP session, to be shown; `undefined` before its first command. */
  async getSessionShell(sessionId: string): Promise<Shell | undefined> {
    return this.#shells.get(sessionId);
  }

  /** Ends an ACP session with all its commands. */
  async disposeSession(sessionId: string): Promise<void> {
    for (const id of this.getSessionTerminalIds(sessionId)) this.#terminals.delete(id);
    const session = this.#sessions.get(sessionId);
    this.#sessions.delete(sessionId);
    this.#shells.delete(sessionId);
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

  #shell(sessionId: string, session: Session): Promise<Shell> {
    const known = this.#shells.get(sessionId);
    if (known) return known;
    const { command, shell } = this.#options;
    const { profile, killGraceMs } = command ?? {};
    const opened = session.openShell({
      ...(profile === undefined ? {} : { profile }),
      ...(killGraceMs === undefined ? {} : { killGraceMs }),
      ...(typeof shell === "object" ? shell : {}),
    });
    this.#shells.set(sessionId, opened);
    // The next command tries again.
    opened.catch(() => this.#shells.delete(sessionId));
    return opened;
  }

  #find(terminalId: string): AdapterCommand {
    const created = this.#terminals.get(terminalId);
    if (!created) throw new Error(`there is no terminal ${terminalId}`);
    return created.command;
  }
}
