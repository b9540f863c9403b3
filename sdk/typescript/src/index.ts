export * from "./acp.js";
export * from "./errors.js";
export type {
  LineDoubt,
  LineEnd,
  LineEnding,
  LineEvent,
  LineOptions,
  LineResult,
  RunLineOptions,
  ShellActivity,
  ShellOptions,
  ShellStatus,
} from "./lines.js";
export { Gateway, type Answer, type GatewayOptions } from "./gateway.js";
export { Session } from "./session.js";
export { Shell } from "./shell.js";
export { Terminal, type AttachOptions, type Retained } from "./terminal.js";
export type {
  Approval,
  Cause,
  Chunk,
  Command,
  CommandOptions,
  CreateOptions,
  Exit,
  Gap,
  Outcome,
  Result,
  RunOptions,
  SessionOptions,
  Stream,
  TerminalInfo,
} from "./types.js";
