// The examples, as they stand.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { TestGateway } from "./gateway.js";

const EXAMPLES = join(dirname(fileURLToPath(import.meta.url)), "../examples");
let served: TestGateway;

before(async () => {
  served = await TestGateway.start();
});

after(() => served?.end());

function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const env = { ...process.env, PROVOST_GATEWAY: served.address };
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd: served.workspace, env }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === "number" ? error.code : 0, stdout, stderr });
    });
  });
}

test("run", async () => {
  const ended = await run(join(EXAMPLES, "run.js"), "sh", "-c", "echo hello; exit 3");
  assert.deepEqual(ended, { code: 3, stdout: "hello\n", stderr: "ended: EXITED\n" });
  const denied = await run(join(EXAMPLES, "run.js"), "reboot");
  assert.equal(denied.code, 126);
  assert.match(denied.stderr, /^denied by no-reboot/);
});

test("editor", async () => {
  const { code, stdout, stderr } = await run(join(EXAMPLES, "editor.js"));
  assert.deepEqual([code, stdout, stderr], [0, "hello (0)\n", ""]);
});
