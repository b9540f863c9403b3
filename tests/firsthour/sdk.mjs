// Runs what lines of JSON name through the SDK for TypeScript, as a user: `sdk.mjs SDK UID ADDRESS WORKSPACE`.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, user, address, workspace] = process.argv.slice(2);
// Read while this may still look where the libraries lie.
const { Gateway, ProvostError } = await import(pathToFileURL(sdk).href);
if (process.getuid() !== Number(user)) {
  process.setgroups([]);
  process.setgid(Number(user));
  process.setuid(Number(user));
}

const say = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);
// Texts that are bytes in the message, as texts.
const text = (_, value) => (value?.type === "Buffer" ? Buffer.from(value.data).toString() : value);
const word = (encoded) => {
  const bytes = Buffer.from(encoded, "base64");
  const asText = bytes.toString();
  return Buffer.from(asText).equals(bytes) ? asText : bytes;
};

const gateway = new Gateway({ address });
const session = await gateway.openSession([workspace]);
say("ready");
for await (const line of createInterface({ input: process.stdin })) {
  try {
    const result = await session.run(JSON.parse(line).map(word), { split: true });
    const said = `${result.stderr}${JSON.stringify(result.outcome, text)}`;
    say([result.exitCode ?? null, result.output.toString("base64"), said]);
  } catch (error) {
    if (!(error instanceof ProvostError)) throw error;
    say([null, "", `${error.constructor.name}: ${error.message}`]);
  }
}
await session.close();
gateway.close();
