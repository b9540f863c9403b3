// What the README shows, as it stands: checked with the package's types, and run against the real gateway.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { TestGateway } from "./gateway.js";

const PACKAGE = join(dirname(fileURLToPath(import.meta.url)), "../..");
const PROGRAMS = join(PACKAGE, "build/readme");
const OPENED = 'import { Gateway } from "@provost/sdk";\nusing gateway = new Gateway();\nawait using session = await gateway.openSession(["."]);\n';
const CALLBACKS = 'import { createTerminalCallbacks } from "@provost/sdk";\nconst [workspaceFolder, sessionId] = [process.cwd(), "s1"];\n';
let served: TestGateway;

before(async () => {
  served = await TestGateway.start();
  mkdirSync(join(served.workspace, "src"));
  writeFileSync(join(served.workspace, "Makefile"), "test:\n\t@echo made $@\n");
  writeFileSync(join(served.workspace, "src/Makefile"), "all:\n\t@echo $(CC)\n");
  rmSync(PROGRAMS, { recursive: true, force: true });
  mkdirSync(PROGRAMS, { recursive: true });
});

after(() => served?.end());

/** The block in TypeScript that has this text. */
function block(text: string): string {
  const pieces = readFileSync(join(PACKAGE, "README.md"), "utf8").split("```ts\n").slice(1);
  const found = pieces.map((piece) => piece.split("```")[0] ?? "").filter((piece) => piece.includes(text));
  assert.equal(found.length, 1, `${found.length} blocks have ${text}`);
  return found[0] as string;
}

function run(program: string, args: string[], cwd: string): Promise<string> {
  const env = { ...process.env, PROVOST_GATEWAY: served.address };
  return new Promise((resolve, reject) => {
    execFile(program, args, { cwd, env, timeout: 110_000 }, (error, stdout, stderr) => {
      if (error) reject(new Error(`${stdout}${stderr}`));
      else resolve(stdout);
    });
  });
}

/** What a program of these lines prints. It has to be right by the types of the package. */
async function printed(name: string, lines: string): Promise<string> {
  writeFileSync(join(PROGRAMS, `${name}.mts`), lines);
  const options = ["--ignoreConfig", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,esnext.disposable", "--types", "node", "--skipLibCheck"];
  await run(join(PACKAGE, "node_modules/.bin/tsc"), [...options, `${name}.mts`], PROGRAMS);
  return run(process.execPath, [join(PROGRAMS, `${name}.mjs`)], served.workspace);
}

test("first command", async () => {
  assert.equal(await printed("first", block("openSession")), "0 made test\n\n");
});

test("kept shell", async () => {
  const said = await printed("shell", `${OPENED}${block("openShell")}console.log(exitCode, text, end?.cwd);\n`);
  assert.match(said, /^0 clang/);
  assert.ok(said.includes(join(served.workspace, "src")), said);
});

/** Has the callbacks run a command for an agent. */
const CALLED = `
const { terminalId } = await callbacks.createTerminal({ sessionId, command: "echo", args: ["called"] });
await callbacks.waitForTerminalExit({ sessionId, terminalId });
console.log((await callbacks.terminalOutput({ sessionId, terminalId })).output.trim());
await callbacks.releaseTerminal({ sessionId, terminalId });
`;
const DISPOSED = "await adapter.dispose();\n";

test("terminal callbacks", async () => {
  assert.equal(await printed("callbacks", `${CALLBACKS}${block("roots: [workspaceFolder] }")}${CALLED}${DISPOSED}`), "called\n");
});

test("a session's shell", async () => {
  const shown = "const kept = await adapter.getSessionShell(sessionId);\nconsole.log(typeof shell, typeof kept?.attach);\n";
  const said = await printed("session-shell", `${CALLBACKS}${block("getSessionShell")}${CALLED}${shown}${DISPOSED}`);
  assert.equal(said, "called\nundefined function\n");
});

/** An editor as far as the block needs one: it shows the terminal, and is content with the first thing that is drawn. */
const EDITOR = `
import type { ExtensionTerminalOptions } from "vscode";
let draw: (said: string) => void = () => {};
const drawn = new Promise<string>((resolve) => { draw = resolve; });
const vscode = {
  window: {
    createTerminal: ({ name, pty }: ExtensionTerminalOptions) => ({
      show(): void {
        pty.onDidWrite((text) => draw(\`\${name} \${text.length > 0}\`));
        pty.open({ columns: 80, rows: 24 });
      },
    }),
  },
};
`;

test("a program in an editor", async () => {
  const lines = `${EDITOR}${OPENED}${block("pseudoterminal()")}console.log(await drawn);\nawait terminal.kill();\nprocess.exit();\n`;
  assert.equal(await printed("editor", lines), "vim true\n");
});
