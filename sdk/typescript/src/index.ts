export * from "./acp.js";
export * from "./errors.js";
export { Gateway, type Answer, type GatewayOptions } from "./gateway.js";
export { Session } from "./session.js";
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
