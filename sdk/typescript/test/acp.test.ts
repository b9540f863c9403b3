// The terminal callbacks of the Agent Client Protocol, against the real gateway.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";

import { createTerminalCallbacks, Denied, type TerminalAdapter, type TerminalCallbacks } from "../src/index.js";
import { TestGateway } from "./gateway.js";

let served: TestGateway;
let callbacks: TerminalCallbacks;
let adapter: TerminalAdapter;

before(async () => {
  served = await TestGateway.start();
  ({ callbacks, adapter } = createTerminalCallbacks({ address: served.address, roots: [served.workspace] }));
});

after(async () => {
  await adapter?.dispose();
  await served?.end();
});

suite("terminal callbacks", () => {
  const sessionId = "editor-1";

  test("a command is created, waited for, read and released", async () => {
    const { terminalId } = await callbacks.createTerminal({
      sessionId,
      command: "sh",
      args: ["-c", "printenv NAME; exit 4"],
      env: [{ name: "NAME", value: "value" }],
      cwd: served.workspace,
    });
    assert.deepEqual(await callbacks.waitForTerminalExit({ sessionId, terminalId }), { exitCode: 4, signal: null });
    assert.deepEqual(await callbacks.terminalOutput({ sessionId, terminalId }), {
      output: "value\n",
      truncated: false,
      exitStatus: { exitCode: 4, signal: null },
    });
    assert.deepEqual(adapter.getSessionTerminalIds(sessionId), [terminalId]);
    await callbacks.releaseTerminal({ sessionId, terminalId });
    assert.deepEqual(adapter.getSessionTerminalIds(sessionId), []);
    await assert.rejects(callbacks.terminalOutput({ sessionId, terminalId }));
  });

  test("a command without arguments is a shell line", async () => {
    const { terminalId } = await callbacks.createTerminal({ sessionId, command: "echo one && echo two" });
    await callbacks.waitForTerminalExit({ terminalId });
    assert.equal((await callbacks.terminalOutput({ terminalId })).output, "one\ntwo\n");
    await callbacks.releaseTerminal({ terminalId });
  });

  test("64 KiB of output are kept, the tail, cut at a character", async () => {
    const shellLine = "for i in $(seq 1 20000); do printf 'äöü'; done; printf '!end'";
    const { terminalId } = await callbacks.createTerminal({ sessionId, command: shellLine });
    await callbacks.waitForTerminalExit({ terminalId });
    const { output, truncated } = await callbacks.terminalOutput({ terminalId });
    assert.equal(truncated, true);
    assert.ok(output.endsWith("äöü!end"));
    assert.ok(!output.includes("\uFFFD"));
    const length = Buffer.byteLength(output);
    assert.ok(length <= 65536 && length > 65530, `${length}`);
    await callbacks.releaseTerminal({ terminalId });
  });

  test("a wait ends when the command is idle, and the command runs on", async () => {
    const { terminalId } = await callbacks.createTerminal({
      sessionId,
      command: "echo here; while ! [ -e wake ]; do sleep 0.02; done",
    });
    const idle = await callbacks.waitForTerminalExit({ terminalId, idleTimeoutMs: 300 });
    assert.deepEqual(idle, { stillRunning: "idle" });
    const before = await callbacks.terminalOutput({ terminalId });
    assert.deepEqual(before, { output: "here\n", truncated: false });
    writeFileSync(join(served.workspace, "wake"), "");
    const ended = await callbacks.waitForTerminalExit({ terminalId, timeoutMs: Infinity, idleTimeoutMs: Infinity });
    assert.deepEqual(ended, { exitCode: 0, signal: null });
    await callbacks.releaseTerminal({ terminalId });
  });

  test("a wait takes no longer than its timeout, although the command writes", async () => {
    const { terminalId } = await callbacks.createTerminal({
      sessionId,
      command: "while true; do echo tick; sleep 0.02; done",
    });
    const response = await callbacks.waitForTerminalExit({ terminalId, timeoutMs: 600, idleTimeoutMs: 200 });
    assert.deepEqual(response, { stillRunning: "timeout" });
    await callbacks.killTerminal({ terminalId });
    const { signal } = await callbacks.waitForTerminalExit({ terminalId });
    assert.equal(signal, "SIGTERM");
    await callbacks.releaseTerminal({ terminalId });
  });

  test("sessions are kept apart and end with all their commands", async () => {
    const create = (id: string, command: string) => callbacks.createTerminal({ sessionId: id, command });
    const first = await create("editor-2", "echo mine > /tmp/private; sleep 1000");
    const second = await create("editor-3", "test -e /tmp/private");
    const { exitCode } = await callbacks.waitForTerminalExit(second);
    assert.equal(exitCode, 1);
    assert.deepEqual(adapter.getSessionTerminalIds("editor-2"), [first.terminalId]);
    await adapter.disposeSession("editor-2");
    await assert.rejects(callbacks.terminalOutput(first));
    assert.equal((await callbacks.terminalOutput(second)).exitStatus?.exitCode, 1);
  });

  test("a denial reaches the editor", async () => {
    await assert.rejects(callbacks.createTerminal({ sessionId, command: "reboot", args: ["now"] }), Denied);
  });
});
