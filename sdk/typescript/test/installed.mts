// Compiled against the installed package only: its types are there, and strict.

import { createTerminalCallbacks, Gateway, type Pseudoterminal, type Result } from "@provost/sdk";

export async function use(): Promise<number> {
  using gateway = new Gateway();
  await using session = await gateway.openSession(["."]);
  const result: Result = await session.run(["true"], { timeLimitMs: 1_000 });
  const terminal = await session.create(["vim"], { pty: { columns: 80, rows: 24 } });
  const shown: Pseudoterminal = terminal.pseudoterminal({ onClose: "release" });
  shown.onDidClose((code: number | void) => code);
  const { callbacks } = createTerminalCallbacks({ gateway, roots: ["."] });
  // @ts-expect-error: a terminal has a session.
  await callbacks.createTerminal({ command: "true" });
  return result.exitCode ?? 1;
}
