// The real gateway, for the tests: started in a directory of its own, killed, and started again.
//
// `$PROVOST` names the binary; else it is the one that cargo has built.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../../../..");
const DEADLINE_MS = 60_000;

/** Beside the shipped policy: one rule that denies, and one that asks. */
const RULES = `
[[rule]]
id = "no-reboot"
decision = "deny"
argv = ["reboot", "**"]
reason = "this machine is not yours"

[[rule]]
id = "ask-publish"
decision = "ask"
argv = ["echo", "publish", "**"]
reason = "publishing needs a person"
`;

/** A running `provost serve`. */
export class TestGateway {
  readonly directory = mkdtempSync(join(tmpdir(), "provost-sdk-"));
  readonly workspace = join(this.directory, "work");
  readonly socket = join(this.directory, "run/provost.sock");
  readonly address = `unix:${this.socket}`;
  #process!: ChildProcess;

  static async start(): Promise<TestGateway> {
    const gateway = new TestGateway();
    mkdirSync(gateway.workspace);
    mkdirSync(join(gateway.directory, "policies"));
    copyFileSync(join(ROOT, "policies/default.toml"), join(gateway.directory, "policies/default.toml"));
    writeFileSync(join(gateway.directory, "policies/tests.toml"), RULES);
    // A gateway that ends does not wait long for those who read.
    writeFileSync(join(gateway.directory, "config.toml"), 'drain = "100ms"\n');
    await gateway.startAgain();
    return gateway;
  }

  /** Starts one on what the one before has left. */
  async startAgain(): Promise<void> {
    const at = (name: string) => join(this.directory, name);
    const binary = process.env["PROVOST"] ?? join(ROOT, "target/debug/provost");
    const log = openSync(at("log"), "a");
    const places = ["--config", at("config.toml"), "--listen", this.address, "--state", at("state"), "--policies", at("policies")];
    this.#process = spawn(binary, ["serve", ...places], { stdio: ["ignore", log, log] });
    closeSync(log);
    const deadline = Date.now() + DEADLINE_MS;
    while (!existsSync(this.socket)) {
      if (this.#process.exitCode !== null || Date.now() > deadline) {
        throw new Error(readFileSync(at("log"), "utf8"));
      }
      await sleep(10);
    }
  }

  /** Kills it, as a crash does. */
  async crash(): Promise<void> {
    this.#process.kill("SIGKILL");
    await once(this.#process, "exit");
    // The next one makes its own: a test that waits for the file must not find the old one.
    rmSync(this.socket, { force: true });
  }

  /** Ends it in good order; commands run on. */
  async leave(): Promise<void> {
    this.#process.kill("SIGTERM");
    await once(this.#process, "exit");
  }

  /** Stops it with all its commands, and removes its directory. */
  async end(): Promise<void> {
    this.#process.kill("SIGINT");
    await once(this.#process, "exit");
    rmSync(this.directory, { recursive: true, force: true });
  }
}
