// What an editor's extension does with an agent's terminal requests.

import { createTerminalCallbacks } from "../src/index.js";

const { callbacks, adapter } = createTerminalCallbacks({ roots: ["."] });
const sessionId = "the session's id, as the agent has it";

const { terminalId } = await callbacks.createTerminal({ sessionId, command: "echo", args: ["hello"] });
const { exitCode } = await callbacks.waitForTerminalExit({ sessionId, terminalId });
const { output } = await callbacks.terminalOutput({ sessionId, terminalId });
console.log(`${output.trim()} (${exitCode})`);
await callbacks.releaseTerminal({ sessionId, terminalId });
await adapter.dispose();
