// The terminal callbacks with one kept shell for each session, against the real gateway.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import {
  createTerminalCallbacks,
  Denied,
  ProvostError,
  type AdapterOptions,
  type TerminalAdapter,
  type TerminalCallbacks,
} from "../src/index.js";
import { TestGateway } from "./gateway.js";

let served: TestGateway;
let callbacks: TerminalCallbacks;
let adapter: TerminalAdapter;

const withShell = (shell: NonNullable<AdapterOptions["shell"]>) =>
  createTerminalCallbacks({
    address: served.address,
    roots: [served.workspace],
    shell,
    command: { killGraceMs: 1_000 },
  });

before(async () => {
  served = await TestGateway.start();
  ({ callbacks, adapter } = withShell({ program: "bash", quietLimitMs: 500 }));
});

after(async () => {
  await adapter?.dispose();
  await served?.end();
});

async function untilOutput(terminalId: string, text: string): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!(await callbacks.terminalOutput({ terminalId })).output.includes(text)) {
    assert.ok(Date.now() < deadline, `there is no ${text}`);
    await sleep(20);
  }
}

/** Runs a command to its end. */
async function ran(sessionId: string, command: string, args: string[] = [], more = {}) {
  const { terminalId } = await callbacks.createTerminal({ sessionId, command, args, ...more });
  const status = await callbacks.waitForTerminalExit({ terminalId, idleTimeoutMs: Infinity });
  const { output, truncated, exitStatus } = await callbacks.terminalOutput({ terminalId });
  assert.deepEqual(exitStatus, status);
  await callbacks.releaseTerminal({ terminalId });
  await assert.rejects(callbacks.terminalOutput({ terminalId }));
  return { terminalId, status, output, truncated };
}

suite("terminal callbacks with a kept shell", () => {
  test("the commands of a session run in one shell, with their own output and exit code", async () => {
    const sessionId = "one";
    mkdirSync(join(served.workspace, "inner"));
    const first = await ran(sessionId, "cd inner && export KEPT=value; (exit 4)");
    assert.deepEqual([first.output, first.status], ["", { exitCode: 4, signal: null }]);
    const second = await ran(sessionId, 'printenv KEPT; pwd');
    assert.deepEqual(second.output, `value\n${served.workspace}/inner\n`);
    // Arguments are one word each.
    const words = await ran(sessionId, "printf", ["%s|", "a b", "it's", "$KEPT", "*"]);
    assert.equal(words.output, "a b|it's|$KEPT|*|");
    const elsewhere = await ran(sessionId, "pwd # here", [], { cwd: served.workspace });
    assert.equal(elsewhere.output, `${served.workspace}\n`);
    const missing = await ran(sessionId, "echo not", [], { cwd: join(served.workspace, "missing") });
    assert.notEqual(missing.status.exitCode, 0);
    assert.ok(!missing.output.includes("not\n"), missing.output);
    const shell = await adapter.getSessionShell(sessionId);
    for (const { terminalId } of [first, second, words, elsewhere]) assert.ok(terminalId.startsWith(`${shell?.id}-`));
    // An editor shows the shell, with all that has run in it.
    assert.ok((await shell!.output()).text.includes("value\r\n"));
  });

  test("sessions have shells of their own", async () => {
    await ran("two", "export KEPT=mine");
    assert.equal((await ran("three", 'printenv KEPT || echo none')).output, "none\n");
    await adapter.disposeSession("two");
    assert.equal(await adapter.getSessionShell("two"), undefined);
    assert.equal((await ran("two", 'printenv KEPT || echo none')).output, "none\n");
  });

  test("variables of a command do not stay in the shell", async () => {
    const given = await ran("four", "printenv NAME", [], { env: [{ name: "NAME", value: "given" }] });
    assert.equal(given.output, "given\n");
    assert.equal((await ran("four", 'printenv NAME || echo none')).output, "none\n");
  });

  test("killing interrupts the line and not the shell", async () => {
    const sessionId = "five";
    await ran(sessionId, "export KEPT=value");
    const { terminalId } = await callbacks.createTerminal({ sessionId, command: "sh -c 'echo begun; exec sleep 1000'" });
    await untilOutput(terminalId, "begun");
    const idle = await callbacks.waitForTerminalExit({ terminalId, idleTimeoutMs: 200 });
    assert.deepEqual(idle, { stillRunning: "idle" });
    assert.deepEqual(await callbacks.terminalOutput({ terminalId }), { output: "begun\n", truncated: false });
    await callbacks.killTerminal({ terminalId });
    assert.deepEqual(await callbacks.waitForTerminalExit({ terminalId }), { exitCode: 130, signal: null });
    await callbacks.killTerminal({ terminalId });
    await callbacks.releaseTerminal({ terminalId });
    assert.equal((await ran(sessionId, "printenv KEPT")).output, "value\n");
  });

  test("a command gets a terminal of its own while another one has the shell", async () => {
    const sessionId = "six";
    await ran(sessionId, "mkdir -p six && cd six && export KEPT=value");
    const line = await callbacks.createTerminal({ sessionId, command: "while ! [ -e go-on ]; do sleep 0.02; done" });
    const own = await ran(sessionId, 'pwd; printenv KEPT || echo none');
    assert.equal(own.output, `${served.workspace}\nnone\n`);
    writeFileSync(join(served.workspace, "six/go-on"), "");
    await callbacks.waitForTerminalExit({ ...line, idleTimeoutMs: Infinity });
    assert.equal((await ran(sessionId, "printenv KEPT")).output, "value\n");
  });

  test("or it waits for the shell, or is refused", async () => {
    for (const whenBusy of ["queue", "refuse"] as const) {
      const other = withShell({ program: "bash", whenBusy });
      await using _closed = other.adapter;
      const sessionId = "other";
      const go = `go-on-${whenBusy}`;
      await other.callbacks.createTerminal({ sessionId, command: `export KEPT=value; while ! [ -e ${go} ]; do sleep 0.02; done` });
      const second = other.callbacks.createTerminal({ sessionId, command: "printenv KEPT" });
      if (whenBusy === "refuse") {
        await assert.rejects(second, (error) => error instanceof ProvostError && error.reason === "SHELL_BUSY");
        continue;
      }
      writeFileSync(join(served.workspace, go), "");
      const { terminalId } = await second;
      await other.callbacks.waitForTerminalExit({ terminalId });
      assert.equal((await other.callbacks.terminalOutput({ terminalId })).output, "value\n");
    }
  });

  test("a command that leaves the shell ends with it, and the next one gets another", async () => {
    const sessionId = "seven";
    const before = await ran(sessionId, "export KEPT=value; exit 3");
    assert.deepEqual(before.status, { exitCode: 3, signal: null });
    assert.equal((await ran(sessionId, 'printenv KEPT || echo none')).output, "none\n");
  });

  test("a release ends a line that ignores interrupts, with its shell", async () => {
    const sessionId = "eight";
    const { terminalId } = await callbacks.createTerminal({
      sessionId,
      command: "sh -c 'trap \"\" INT; echo begun; while :; do sleep 0.1; touch alive; done'",
    });
    await untilOutput(terminalId, "begun");
    await callbacks.killTerminal({ terminalId });
    assert.deepEqual(await callbacks.waitForTerminalExit({ terminalId, timeoutMs: 300 }), { stillRunning: "timeout" });
    await callbacks.releaseTerminal({ terminalId });
    assert.equal((await ran(sessionId, "rm alive; echo on")).output, "on\n");
    assert.equal(existsSync(join(served.workspace, "alive")), false);
  });

  test("64 KiB of output are kept, the tail, cut at a character", async () => {
    const { output, truncated } = await ran("nine", "for i in $(seq 1 20000); do printf 'äöü'; done; printf '!end'");
    assert.equal(truncated, true);
    assert.ok(output.endsWith("äöü!end"));
    assert.ok(!output.includes("\uFFFD"));
    const length = Buffer.byteLength(output);
    assert.ok(length <= 65536 && length > 65530, `${length}`);
  });

  test("what is doubtful is said", async () => {
    const { terminalId } = await callbacks.createTerminal({ sessionId: "ten", command: "_provost() { :; }; PS1='$ '" });
    const status = await callbacks.waitForTerminalExit({ terminalId, idleTimeoutMs: Infinity });
    assert.deepEqual(status, { exitCode: null, signal: null, doubts: ["MARKS_MISSING"] });
  });

  test("a denial reaches the editor, and limits that a line cannot have are refused", async () => {
    await assert.rejects(callbacks.createTerminal({ sessionId: "eleven", command: "reboot", args: ["now"] }), Denied);
    const options = { address: served.address, roots: [], shell: true, command: { timeLimitMs: 1_000 } };
    assert.throws(() => createTerminalCallbacks(options), TypeError);
  });
});
