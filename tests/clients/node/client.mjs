// @grpc/grpc-js: client.mjs ADDRESS WORKSPACE PROTO REFLECTION. Prints the name of each check that has passed.

import assert from "node:assert";
import { promisify } from "node:util";

import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import protobuf from "protobufjs";

const [address, workspace, proto, reflectionProto] = process.argv.slice(2);
const options = { includeDirs: [proto], longs: Number, enums: String, oneofs: true };
const files = ["sessions", "terminals"].map((name) => `provost/v1/${name}.proto`);
const { v1 } = grpc.loadPackageDefinition(loadSync(files, options)).provost;
const reflection = grpc.loadPackageDefinition(loadSync(reflectionProto, options)).grpc.reflection.v1;
const credentials = grpc.credentials.createInsecure();
const terminals = new v1.Terminals(address, credentials);
const sessions = new v1.Sessions(address, credentials);
const call = (client, name, ...args) => promisify(client[name]).call(client, ...args);

const { session } = await call(sessions, "createSession", { roots: [workspace] });
assert.match(session.id, /^sess_/);
console.log("unary");

const command = (program, ...args) => ({ sessionId: session.id, program, args });

async function refused(promise, code) {
  const error = await promise.then(() => assert.fail("the call succeeded"), (error) => error);
  assert.strictEqual(error.code, code, String(error));
  return error;
}

const pieces = [];
let finished;
for await (const event of terminals.run({ create: command("seq", "100000") })) {
  if (event.chunk) pieces.push(event.chunk.data);
  finished = event.finished;
}
const expected = Array.from({ length: 100000 }, (_, n) => `${n + 1}\n`).join("");
assert.strictEqual(Buffer.concat(pieces).toString(), expected);
assert.strictEqual(finished.outcome.exitCode, 0);
console.log("stream");

const error = await refused(call(terminals, "createTerminal", command("no-such-program")), grpc.status.FAILED_PRECONDITION);
const types = protobuf.parse(`syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }`).root;
const status = types.lookupType("Status").decode(error.metadata.get("grpc-status-details-bin")[0]);
const info = types.lookupType("ErrorInfo").decode(status.details[0].value);
assert.deepStrictEqual([info.domain, info.reason], ["provost", "COMMAND_NOT_FOUND"]);
console.log("details");

const { terminal: sleeper } = await call(terminals, "createTerminal", command("sleep", "1000"));
const deadline = Date.now() + 200;
await refused(call(terminals, "waitForExit", { terminalId: sleeper.id }, { deadline }), grpc.status.DEADLINE_EXCEEDED);
await call(terminals, "releaseTerminal", { terminalId: sleeper.id });
console.log("deadline");

const run = terminals.run({ create: command("sleep", "1000") });
const cancelled = new Promise((_, reject) => run.on("error", reject));
await new Promise((resolve) => run.once("data", resolve));
run.cancel();
await refused(cancelled, grpc.status.CANCELLED);
while ((await call(terminals, "listTerminals", { sessionId: session.id })).terminals?.length) {
  // It is being released.
}
console.log("cancellation");

const services = new reflection.ServerReflection(address, credentials).serverReflectionInfo();
const answered = new Promise((resolve, reject) => services.on("data", resolve).on("error", reject));
services.write({ listServices: "" });
const { listServicesResponse } = await answered;
services.end();
assert.ok(listServicesResponse.service.some(({ name }) => name === "provost.v1.Terminals"));
console.log("reflection");
