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
export type { Disposable, Event } from "./emitter.js";
export type { Pseudoterminal, PseudoterminalOptions } from "./pseudoterminal.js";
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
  Dimensions,
  Exit,
  Gap,
  Outcome,
  Result,
  RunOptions,
  SessionOptions,
  Stream,
  TerminalInfo,
  Text,
} from "./types.js";
