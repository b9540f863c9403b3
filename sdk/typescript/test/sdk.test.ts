// The client against the real gateway.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import {
  ApprovalRequired,
  Cancelled,
  DeadlineExceeded,
  Denied,
  Gateway,
  GatewayUnavailable,
  InvalidField,
  NotFound,
  SpawnFailed,
  type Chunk,
  type Gap,
  type Session,
} from "../src/index.js";
import { TestGateway } from "./gateway.js";

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

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const bytes = (pieces: (Chunk | Gap)[]) =>
  Buffer.concat(pieces.map((piece) => (piece.kind === "chunk" ? piece.data : Buffer.alloc(0))));

test("what is no UTF-8 and the umask reach a command", async () => {
  const tell = "umask; printf '%s|' \"$@\"";
  const words = [Uint8Array.of(0x61, 0xff), "text"];
  const told = await session.run(["sh", "-c", tell, "sh", ...words], { umask: 0o027 });
  assert.deepEqual(Buffer.from(told.output), Buffer.concat([Buffer.from("0027\na"), Buffer.of(0xff), Buffer.from("|text|")]));
  const own = await session.run(["sh", "-c", "umask"]);
  assert.equal(parseInt(Buffer.from(own.output).toString(), 8), process.umask());
});

suite("commands", () => {
  test("a command runs to its end", async () => {
    const result = await session.run(["sh", "-c", "echo out; exit 3"]);
    assert.deepEqual([result.exitCode, result.output.toString()], [3, "out\n"]);
    assert.equal(result.outcome.cause, "EXITED");
    assert.equal(result.truncated, false);
  });

  test("a shell line and its environment", async () => {
    const result = await session.run({ shellLine: "printenv GREETING; pwd" }, { env: { GREETING: "hello" } });
    assert.equal(result.output.toString(), `hello\n${served.workspace}\n`);
  });

  test("stdout and stderr are two streams", async () => {
    const result = await session.run(["sh", "-c", "echo out; echo err >&2"], { split: true });
    assert.deepEqual([result.output.toString(), result.stderr.toString()], ["out\n", "err\n"]);
  });

  test("output comes while the command runs", async () => {
    const shellLine = "echo first; while ! [ -e go-on ]; do sleep 0.02; done; echo second";
    const seen: string[] = [];
    for await (const event of session.stream({ shellLine })) {
      if (event.kind === "exit") {
        assert.equal(event.outcome.exitCode, 0);
      } else {
        seen.push(event.data.toString());
        writeFileSync(join(served.workspace, "go-on"), "");
      }
    }
    assert.deepEqual(seen, ["first\n", "second\n"]);
    assert.deepEqual(await session.terminals(), []);
  });

  test("a stream that is left stops its command", async () => {
    for await (const event of session.stream(["sh", "-c", "echo here; exec sleep 1000"])) {
      assert.equal(event.kind, "chunk");
      assert.equal((await session.terminals()).length, 1);
      break;
    }
    assert.deepEqual(await session.terminals(), []);
  });

  test("a cancelled run stops its command", async () => {
    const cancel = new AbortController();
    const run = session.run(["sh", "-c", "echo here; exec sleep 1000"], {
      signal: cancel.signal,
      onOutput: () => cancel.abort(),
    });
    await assert.rejects(run, Cancelled);
    assert.deepEqual(await session.terminals(), []);
  });

  test("a result keeps the tail", async () => {
    const result = await session.run(["seq", "100000"], { keepBytes: 7 });
    assert.deepEqual([result.output.toString(), result.truncated], ["100000\n", true]);
  });

  test("limits end a command", async () => {
    const timed = await session.run(["sleep", "1000"], { timeLimitMs: 200 });
    assert.equal(timed.outcome.cause, "TIME_LIMIT");
    const idle = await session.run(["sh", "-c", "echo one; sleep 1000"], { idleLimitMs: 300 });
    assert.deepEqual([idle.outcome.cause, idle.output.toString()], ["IDLE_LIMIT", "one\n"]);
  });

  test("two commands run at the same time", async () => {
    const lines = ["touch a; while ! [ -e b ]; do sleep 0.02; done", "touch b; while ! [ -e a ]; do sleep 0.02; done"];
    const results = await Promise.all(lines.map((shellLine) => session.run({ shellLine }, { timeLimitMs: 60_000 })));
    assert.deepEqual(results.map(({ exitCode }) => exitCode), [0, 0]);
  });
});

suite("terminals", () => {
  test("a terminal is written to, waited for and released", async () => {
    const terminal = await session.create(["cat"], { stdin: true });
    assert.equal(await terminal.write("x".repeat(3_000_000)), 3_000_000);
    await terminal.write("end", { eof: true });
    assert.equal((await terminal.wait()).exitCode, 0);
    assert.equal((await terminal.info()).command, "cat");
    const { text, truncated } = await terminal.output();
    assert.deepEqual([text.slice(-4), truncated], ["xend", true]);
    await terminal.release();
    await assert.rejects(terminal.info(), NotFound);
  });

  test("output is attached to from an offset", async () => {
    const terminal = await session.create(["printf", "0123456789"]);
    await terminal.wait();
    const [chunk, ...rest] = await all(terminal.attach({ offset: 4 }));
    assert.deepEqual(chunk, { kind: "chunk", stream: "stdout", offset: 4, data: Buffer.from("456789") });
    assert.deepEqual(rest, []);
    const again = await all(session.terminal(terminal.id).attach({ offset: 8, follow: false }));
    assert.equal(bytes(again).toString(), "89");
    await terminal.release();
  });

  test("dropped output is a counted gap", async () => {
    const terminal = await session.create(["seq", "100000"], { outputByteLimit: 4096 });
    await terminal.wait();
    const pieces = await all(terminal.attach());
    assert.equal(pieces[0]?.kind, "gap");
    assert.equal(bytes(pieces).length, 4096);
    await terminal.release();
  });

  test("killing ends it", async () => {
    const terminal = await session.create(["sleep", "1000"]);
    await assert.rejects(terminal.wait({ timeoutMs: 100 }), DeadlineExceeded);
    await terminal.kill({ graceMs: 5_000 });
    const { signal, cause } = await terminal.wait();
    assert.deepEqual([signal, cause], ["SIGTERM", "KILLED"]);
    await terminal.release();
  });

  test("a signal reaches it", async () => {
    const terminal = await session.create(["sleep", "1000"]);
    await terminal.signal("SIGINT");
    const { signal, cause } = await terminal.wait();
    assert.deepEqual([signal, cause], ["SIGINT", "SIGNALLED"]);
    await terminal.release();
  });
});

suite("refusals", () => {
  test("a denial names its rule and reason", async () => {
    await assert.rejects(session.run(["reboot", "now"]), (error: unknown) => {
      assert.ok(error instanceof Denied);
      assert.deepEqual([error.rule, error.reason], ["no-reboot", "POLICY_DENIED"]);
      assert.match(error.message, /this machine is not yours/);
      return true;
    });
  });

  test("other errors have their types", async () => {
    await assert.rejects(session.run(["no-such-program"]), SpawnFailed);
    await assert.rejects(session.run(["true"], { cwd: "not/absolute" }), (error: unknown) => {
      assert.ok(error instanceof InvalidField);
      assert.equal(error.field, "cwd");
      return true;
    });
    await assert.rejects(gateway.session("sess_01ARZ3NDEKTSV4RRFFQ69G5FAV").run(["true"]), NotFound);
  });

  test("an approval is asked for, watched and given", async () => {
    const states: string[] = [];
    const person = (async () => {
      for await (const { id, state, rule } of gateway.watchApprovals({ sessionId: session.id })) {
        assert.equal(rule, "ask-publish");
        states.push(state);
        if (state === "PENDING") await gateway.approve(id, { comment: "go on" });
        if (state === "USED") return;
      }
    })();
    const result = await session.run(["echo", "publish", "it"]);
    await person;
    assert.equal(result.output.toString(), "publish it\n");
    assert.deepEqual(states, ["PENDING", "APPROVED", "USED"]);
  });

  test("an approval is left open and denied", async () => {
    let asked: ApprovalRequired | undefined;
    await assert.rejects(session.run(["echo", "publish", "no"], { onAsk: "refuse" }), (error: unknown) => {
      assert.ok(error instanceof ApprovalRequired);
      asked = error;
      return true;
    });
    assert.ok((await gateway.approvals()).some(({ id }) => id === asked?.approvalId));
    assert.equal((await gateway.deny(asked!.approvalId)).state, "DENIED");
  });
});

suite("restarts", () => {
  async function startAgainLater(): Promise<void> {
    // Calls fail meanwhile.
    await sleep(300);
    await served.startAgain();
  }

  test("a run loses and doubles no byte", async () => {
    const count = 3_000_000;
    const expected = createHash("sha256");
    for (let n = 1; n <= count; n += 1) expected.update(`${n}\n`);
    const found = createHash("sha256");
    // A crash, an end in good order, and another crash.
    const ends = [() => served.crash(), () => served.leave(), () => served.crash()];
    let offset = 0;
    for await (const event of session.stream(["seq", `${count}`])) {
      if (event.kind === "exit") {
        assert.equal(event.outcome.exitCode, 0);
        continue;
      }
      assert.equal(event.offset, offset);
      offset += event.data.length;
      found.update(event.data);
      if (ends.length > 0 && offset > (4 - ends.length) * 4_000_000) {
        await ends.shift()!();
        await startAgainLater();
      }
    }
    assert.deepEqual(ends, []);
    assert.equal(found.digest("hex"), expected.digest("hex"));
  });

  test("waiting and reading go on at the next gateway", async () => {
    const shellLine = "echo before; while ! [ -e proceed ]; do sleep 0.02; done; echo after; exit 5";
    const terminal = await session.create({ shellLine });
    const pieces = terminal.attach();
    assert.equal((await pieces.next()).value?.kind, "chunk");
    const waited = terminal.wait();
    await served.crash();
    const starting = startAgainLater();
    writeFileSync(join(served.workspace, "proceed"), "");
    assert.equal((await waited).exitCode, 5);
    await starting;
    assert.equal(bytes(await all(pieces)).toString(), "after\n");
    await terminal.release();
  });

  test("no gateway is an error when the time is over", async () => {
    await served.crash();
    try {
      using patient = new Gateway({ address: served.address, reconnectForMs: 200 });
      await assert.rejects(patient.openSession([served.workspace]), GatewayUnavailable);
    } finally {
      await served.startAgain();
    }
  });
});
