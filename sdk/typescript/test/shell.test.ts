// Kept shells against the real gateway.

import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import {
  Cancelled,
  Denied,
  Gateway,
  GatewayUnavailable,
  ProvostError,
  type LineEvent,
  type Session,
  type Shell,
  type ShellActivity,
} from "../src/index.js";
import { TestGateway } from "./gateway.js";

const DEADLINE_MS = 60_000;

let served: TestGateway;
let gateway: Gateway;
let session: Session;

before(async () => {
  served = await TestGateway.start();
  gateway = new Gateway({ address: served.address });
  session = await gateway.openSession([served.workspace]);
});

after(async () => {
  await session?.close();
  gateway?.close();
  await served?.end();
});

const inWorkspace = (name: string) => join(served.workspace, name);
const withReason = (reason: string) => (error: unknown) => error instanceof ProvostError && error.reason === reason;

async function untilOutput(events: AsyncGenerator<LineEvent, void, void>, text: string): Promise<void> {
  for (;;) {
    const { value, done } = await events.next();
    assert.ok(!done && value.kind !== "end", `ended without ${text}`);
    if (value.kind === "chunk" && value.data.includes(text)) return;
  }
}

async function endOf(events: AsyncGenerator<LineEvent, void, void>) {
  for await (const event of events) if (event.kind === "end") return event.end;
  throw new Error("there was no end");
}

async function untilActivity(shell: Shell, activity: ShellActivity): Promise<void> {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const status = await shell.status();
    if (status.activity === activity) return;
    assert.ok(Date.now() < deadline, status.activity);
    await sleep(20);
  }
}

suite("kept shells", () => {
  test("each line has its output and exit code, and what it sets stays", async () => {
    await using shell = await session.openShell({ program: "bash" });
    const first = await shell.runLine("mkdir -p inner && cd inner && export KEPT=value; (exit 7)");
    assert.deepEqual([first.exitCode, first.text], [7, ""]);
    const seen: string[] = [];
    const second = await shell.runLine('printf "%s-%s\\n" "$?" "$KEPT"; echo two', { onOutput: ({ data }) => seen.push(data.toString()) });
    assert.deepEqual([second.exitCode, second.text], [0, "7-value\ntwo\n"]);
    assert.equal(seen.join(""), "7-value\r\ntwo\r\n");
    assert.deepEqual([second.end.ending, second.end.doubts, second.end.marksSeen], ["CONFIRMED", [], true]);
    assert.equal(second.end.cwd, inWorkspace("inner"));
    assert.deepEqual(await shell.status(), {
      activity: "IDLE",
      cwd: inWorkspace("inner"),
      lineId: undefined,
      queuedLines: 0,
    });
    // It is a terminal like others, also for those who know only its id.
    const again = session.shell(shell.id);
    assert.equal((await again.runLine("printenv KEPT")).text, "value\n");
    assert.ok((await again.output()).text.includes("7-value"));
  });

  test("the profile's shell is kept if none is named", async () => {
    await using shell = await session.openShell({ columns: 100, rows: 30, env: { GREETING: "hello" } });
    assert.equal((await shell.runLine("printenv GREETING; stty size")).text, "hello\n30 100\n");
    const tail = await shell.runLine("seq 1 2000", { keepBytes: 6 });
    assert.deepEqual([tail.output.toString(), tail.truncated], ["2000\r\n", true]);
  });

  test("a line that waits is given input", async () => {
    await using shell = await session.openShell({ program: "bash" });
    const kinds: string[] = [];
    let lineId = "";
    let output = "";
    for await (const event of shell.streamLine("head -n 1")) {
      kinds.push(event.kind);
      if (event.kind === "started") {
        lineId = event.lineId;
      } else if (event.kind === "waits") {
        assert.equal(event.lineId, lineId);
        const status = await shell.status();
        assert.deepEqual([status.activity, status.lineId], ["WAITING_FOR_INPUT", lineId]);
        await shell.writeLine(lineId, "given\r");
      } else if (event.kind === "chunk") {
        output += event.data.toString();
      }
    }
    assert.deepEqual([kinds[0], kinds.at(-1), kinds.filter((kind) => kind === "waits").length], ["started", "end", 1]);
    assert.ok(output.endsWith("given\r\n"), output);
    await assert.rejects(shell.writeLine(lineId, "late\r"), withReason("LINE_OVER"));
  });

  test("a busy shell refuses or queues, and is interrupted", async () => {
    await using shell = await session.openShell({ program: "bash" });
    const running = shell.streamLine("sh -c 'echo begun; exec sleep 1000'");
    await untilOutput(running, "begun");
    await assert.rejects(shell.runLine("echo no"), withReason("SHELL_BUSY"));
    await shell.interrupt();
    const end = await endOf(running);
    assert.deepEqual([end.exitCode, end.ending], [130, "CONFIRMED"]);
    // A line whose events nobody wants any more goes on; the next one waits for it.
    for await (const event of shell.streamLine("while ! [ -e queued ]; do sleep 0.02; done")) {
      assert.equal(event.kind, "started");
      break;
    }
    assert.equal((await shell.status()).activity, "BUSY");
    writeFileSync(inWorkspace("queued"), "");
    assert.equal((await shell.runLine("echo after", { queue: true })).text, "after\n");
  });

  test("a cancelled line is interrupted", async () => {
    await using shell = await session.openShell({ program: "bash" });
    const cancel = new AbortController();
    const line = shell.runLine("sh -c 'echo begun; exec sleep 1000'", {
      signal: cancel.signal,
      onOutput: ({ data }) => data.includes("begun") && cancel.abort(),
    });
    await assert.rejects(line, Cancelled);
    assert.equal((await shell.runLine("printf '%s\\n' $?", { queue: true })).text, "130\n");
  });

  test("missing marks are an honest flag", async () => {
    await using shell = await session.openShell({ program: "bash" });
    const { end, exitCode } = await shell.runLine("_provost() { :; }; PS1='$ '", { quietLimitMs: 500 });
    assert.deepEqual([end.ending, exitCode, end.marksSeen, end.doubts], ["QUIET", undefined, false, ["MARKS_MISSING"]]);
    await shell.interrupt();
    assert.equal((await shell.runLine("true")).end.marksSeen, true);
  });

  test("a shell that is left has an outcome", async () => {
    await using shell = await session.openShell({ program: "bash" });
    const { end } = await shell.runLine("exit 5");
    assert.deepEqual([end.ending, end.exitCode, end.outcome?.exitCode], ["SHELL_ENDED", 5, 5]);
    assert.equal((await shell.status()).activity, "ENDED");
  });

  test("a line is denied before it runs", async () => {
    await using shell = await session.openShell({ program: "bash" });
    await assert.rejects(shell.runLine("touch denied; reboot now"), Denied);
    assert.equal(existsSync(inWorkspace("denied")), false);
  });

  test("a line goes on without its gateway, and is not run twice", async () => {
    await using shell = await session.openShell({ program: "bash" });
    await shell.runLine("export KEPT=value");
    const running = shell.streamLine("echo once >>ran; while ! [ -e go-on ]; do sleep 0.02; done");
    await running.next();
    await served.crash();
    await assert.rejects(endOf(running), GatewayUnavailable);
    await served.startAgain();
    assert.equal((await shell.status()).activity, "BUSY");
    writeFileSync(inWorkspace("go-on"), "");
    await untilActivity(shell, "IDLE");
    assert.equal((await shell.runLine("cat ran; printenv KEPT")).text, "once\nvalue\n");
  });
});
