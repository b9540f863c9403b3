// Runs a command in a session, prints its output as it comes, and says how it ended: `run.js PROGRAM [ARG]...`

import { Denied, Gateway, type Command } from "../src/index.js";

using gateway = new Gateway();
await using session = await gateway.openSession(["."]);
try {
  const command = process.argv.slice(2) as unknown as Command;
  const { outcome } = await session.run(command, {
    onOutput: ({ data }) => process.stdout.write(data),
    timeLimitMs: 600_000,
  });
  console.error(`ended: ${outcome.cause}`);
  process.exitCode = outcome.exitCode ?? 125;
} catch (error) {
  if (!(error instanceof Denied)) throw error;
  console.error(`denied by ${error.rule}: ${error.message}`);
  process.exitCode = 126;
}
