// A terminal as an editor shows it, against the real gateway.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import type * as vscode from "vscode";

import { Gateway, NotFound, type Command, type Pseudoterminal, type Session, type Terminal } from "../src/index.js";
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

/** What an editor has of one: its text, and its end. */
class Editor {
  text = "";
  names: string[] = [];
  ends: (number | void)[] = [];
  readonly pty: vscode.Pseudoterminal;

  constructor(shown: Pseudoterminal) {
    // The editor's own type takes it.
    this.pty = shown;
    this.pty.onDidWrite((text) => void (this.text += text));
    this.pty.onDidClose?.((code) => void this.ends.push(code));
    this.pty.onDidChangeName?.((name) => void this.names.push(name));
  }

  open(size?: vscode.TerminalDimensions): this {
    this.pty.open(size);
    return this;
  }

  async until(what: string, holds: () => boolean): Promise<void> {
    const deadline = Date.now() + DEADLINE_MS;
    while (!holds()) {
      assert.ok(Date.now() < deadline, `${what}: ${JSON.stringify([this.text, this.ends])}`);
      await sleep(10);
    }
  }

  shows(text: string): Promise<void> {
    return this.until(text, () => this.text.includes(text));
  }

  async end(): Promise<number | void> {
    await this.until("its end", () => this.ends.length > 0);
    return this.ends[0];
  }
}

const inPty = (command: Command): Promise<Terminal> => session.create(command, { pty: { columns: 80, rows: 24 } });
const line = (shellLine: string): Command => ({ shellLine });

suite("a terminal in an editor", () => {
  test("it is drawn, typed into, resized, and ends with its exit code", async () => {
    const terminal = await inPty(line("stty size; read -r word; stty size; printf 'got-%s é€日\\n' \"$word\"; exit 7"));
    const editor = new Editor(terminal.pseudoterminal()).open({ columns: 100, rows: 30 });
    // The first size may come before or behind the program's question.
    await editor.until("the size", () => /(24 80|30 100)/.test(editor.text));
    editor.pty.setDimensions?.({ columns: 61, rows: 17 });
    editor.pty.handleInput?.("typed\r");
    assert.equal(await editor.end(), 7);
    assert.ok(editor.text.includes("17 61") && editor.text.includes("got-typed é€日\r\n"), JSON.stringify(editor.text));
    assert.equal(editor.names.length, 1);
    assert.equal(editor.ends.length, 1);
    await terminal.release();
  });

  test("a full-screen program is whole for an editor that comes later, and two editors type into it", async () => {
    const terminal = await inPty(line("printf '\\033[?1049h\\033[5;5Hdrawn-before'; read -r a; printf '\\033[?1049l%s\\n' \"$a\"; sleep 1000"));
    const first = new Editor(terminal.pseudoterminal()).open();
    await first.shows("drawn-before");
    const second = new Editor(terminal.pseudoterminal()).open({ columns: 80, rows: 24 });
    await second.shows("drawn-before");
    assert.ok(second.text.includes("\x1b[?1049h"), JSON.stringify(second.text));
    second.pty.handleInput?.("by-second\r");
    await first.shows("by-second");
    // Closing leaves the command, and nothing more is told.
    first.pty.close();
    second.pty.handleInput?.("more\r");
    await second.shows("more");
    const { outcome } = await terminal.info();
    assert.equal(outcome, undefined);
    assert.deepEqual(first.ends, []);
    assert.ok(!first.text.includes("more"));
    second.pty.close();
    await terminal.release();
  });

  test("with `release` the command ends when the person closes it", async () => {
    const terminal = await inPty(line("echo begun; sleep 1000"));
    const editor = new Editor(terminal.pseudoterminal({ onClose: "release" })).open();
    await editor.shows("begun");
    editor.pty.close();
    const deadline = Date.now() + DEADLINE_MS;
    for (;;) {
      const gone = await terminal.info().then(() => false, (error: unknown) => error instanceof NotFound);
      if (gone) break;
      assert.ok(Date.now() < deadline, "it is released");
      await sleep(20);
    }
  });

  test("it goes on over a restart of the gateway, without loss or doubles", async () => {
    const terminal = await inPty(line("echo first; while ! [ -e go ]; do sleep 0.02; done; seq 1 200; read -r a; printf 'last-%s\\n' \"$a\""));
    const editor = new Editor(terminal.pseudoterminal()).open();
    await editor.shows("first");
    await served.crash();
    editor.pty.handleInput?.("lost\r");
    writeFileSync(join(served.workspace, "go"), "");
    await served.startAgain();
    await editor.shows("\r\n200\r\n");
    editor.pty.handleInput?.("typed\r");
    assert.equal(await editor.end(), 0);
    const numbers = Array.from({ length: 200 }, (_, index) => `${index + 1}\r\n`).join("");
    assert.ok(editor.text.includes(numbers), JSON.stringify(editor.text));
    assert.equal(editor.text.split("first").length, 2, JSON.stringify(editor.text));
    assert.ok(editor.text.endsWith("last-typed\r\n"), JSON.stringify(editor.text.slice(-100)));
    await terminal.release();
  });

  test("a flood is shown to its end", async () => {
    const terminal = await inPty(line("seq 1 300000; echo over-2"));
    const editor = new Editor(terminal.pseudoterminal()).open();
    assert.equal(await editor.end(), 0);
    assert.ok(editor.text.includes("over-2"), JSON.stringify(editor.text.slice(-200)));
    await terminal.release();
  });

  test("a command without a pseudo-terminal is shown with whole lines, and a signal has no exit code", async () => {
    const terminal = await session.create(line("printf 'one\\ntwo\\n'; kill -KILL $$"));
    const editor = new Editor(terminal.pseudoterminal()).open();
    assert.equal(await editor.end(), undefined);
    assert.equal(editor.text, "one\r\ntwo\r\n");
    await terminal.release();
    // Without a stdin keys are refused, and it is shown to its end.
    const deaf = await session.create(line("echo begun; while ! [ -e hear ]; do sleep 0.02; done; echo over"));
    const watching = new Editor(deaf.pseudoterminal()).open();
    await watching.shows("begun");
    watching.pty.handleInput?.("x");
    await watching.shows("\x07");
    writeFileSync(join(served.workspace, "hear"), "");
    assert.equal(await watching.end(), 0);
    assert.ok(watching.text.endsWith("over\r\n"), JSON.stringify(watching.text));
    await deaf.release();
  });

  test("what cannot be shown says why", async () => {
    const terminal = await inPty(["true"]);
    await terminal.release();
    const editor = new Editor(terminal.pseudoterminal()).open();
    assert.equal(await editor.end(), undefined);
    assert.ok(editor.text.startsWith("\r\n") && editor.text.length > 4, JSON.stringify(editor.text));
  });

  test("a kept shell is shown while its lines run", async () => {
    await using shell = await session.openShell({ program: "bash" });
    const editor = new Editor(shell.pseudoterminal()).open({ columns: 80, rows: 24 });
    await shell.runLine("echo from-a-line");
    await editor.shows("from-a-line");
    // While a line runs its keys are refused, and it goes on showing.
    const running = shell.streamLine("echo begun; head -n 1; echo from-the-same-line");
    for await (const event of running) if (event.kind === "waits") break;
    editor.pty.handleInput?.("x");
    await editor.shows("\x07");
    const { lineId } = await shell.status();
    await shell.writeLine(lineId!, "given\r");
    await editor.shows("from-the-same-line\r\n");
    assert.equal(editor.text.split("begun\r\n").length, 2, JSON.stringify(editor.text));
    // Between lines a person types.
    await shell.runLine("true", { queue: true });
    editor.pty.handleInput?.("echo by-$((40 + 2))\r");
    await editor.shows("by-42\r\n");
    assert.deepEqual(editor.ends, []);
    editor.pty.close();
  });
});
