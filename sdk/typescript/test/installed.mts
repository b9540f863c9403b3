// Compiled against the installed package only: its types are there, and strict.

import { createTerminalCallbacks, Gateway, type Result } from "@provost/sdk";

export async function use(): Promise<number> {
  using gateway = new Gateway();
  await using session = await gateway.openSession(["."]);
  const result: Result = await session.run(["true"], { timeLimitMs: 1_000 });
  const { callbacks } = createTerminalCallbacks({ gateway, roots: ["."] });
  // @ts-expect-error: a terminal has a session.
  await callbacks.createTerminal({ command: "true" });
  return result.exitCode ?? 1;
}
