// The official TypeScript client of MCP against `provost mcp`: PROGRAM GATEWAY WORKSPACE, or URL TOKEN_FILE WORKSPACE for one on HTTP.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [server, gateway, workspace] = process.argv.slice(2);
const client = new Client({ name: "typescript", version: "1" });
const overHttp = () => {
  const headers = { Authorization: `Bearer ${readFileSync(gateway, "utf8").trim()}` };
  return new StreamableHTTPClientTransport(new URL(server), { requestInit: { headers } });
};
await client.connect(
  server.startsWith("http://")
    ? overHttp()
    : new StdioClientTransport({ command: server, args: ["mcp", "--gateway", gateway, "--root", workspace] }),
);
const call = (name, given = {}, options) => client.callTool({ name, arguments: given }, undefined, options);
const text = (result) => result.content[0].text;

const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name), [
  "run_command", "start_command", "read_output", "wait_command", "write_input", "kill_command", "list_commands",
]);
console.log("tools");

const ran = await call("run_command", { command: "echo out; echo err >&2; exit 3" });
assert.equal(text(ran), "exit code 3\noutput (8 bytes):\nout\nerr\n");
assert.equal(ran._meta.provost.exit_code, 3);
console.log("run");

const started = await call("start_command", { command: "cat", open_stdin: true });
const id = started._meta.provost.id;
await call("write_input", { id, text: "typed\n", eof: true });
assert.ok(text(await call("wait_command", { id })).endsWith("typed\n"));
assert.ok(text(await call("read_output", { id, offset: 2 })).endsWith("output:\nped\n"));
console.log("background");

const denied = await call("run_command", { command: "touch published" });
assert.ok(denied.isError && /it is for people/.test(text(denied)) && /no-publishing/.test(text(denied)), text(denied));
console.log("denied");

let told = 0;
const onprogress = () => {
  told += 1;
  if (told === 2) writeFileSync(join(workspace, "go"), "");
};
const ended = await call("run_command", { command: "until [ -e go ]; do sleep 0.05; done" }, { onprogress });
assert.ok(text(ended).startsWith("exit code 0") && told >= 2);
console.log("progress");

const abort = new AbortController();
const cancelled = call("run_command", { command: "touch began; sleep 1000" }, { signal: abort.signal });
while (!existsSync(join(workspace, "began"))) await pause(10);
abort.abort("not wanted");
await assert.rejects(cancelled);
while (/still running/.test(text(await call("list_commands")))) await pause(10);
console.log("cancelled");

await client.close();
