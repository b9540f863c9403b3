// Makes src/generated from ../../proto: the types of the messages, and their description for the wire.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const proto = join(here, "../../proto");
const out = join(here, "src/generated");
const files = ["approvals", "sessions", "terminals"].map((name) => `provost/v1/${name}.proto`);

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const require = createRequire(import.meta.url);
const loader = dirname(require.resolve("@grpc/proto-loader/package.json"));
execFileSync(
  process.execPath,
  [
    join(loader, "build/bin/proto-loader-gen-types.js"),
    "--longs=Number",
    "--enums=String",
    "--defaults",
    "--oneofs",
    "--grpcLib=@grpc/grpc-js",
    "--importFileExtension=.js",
    `--includeDirs=${proto}`,
    `--outDir=${out}`,
    ...files,
  ],
  { stdio: ["ignore", "ignore", "inherit"] },
);

// The description goes into the package as code, so that bundlers need no further file.
const protobuf = createRequire(join(loader, "package.json"))("protobufjs");
const root = new protobuf.Root();
const resolvePath = root.resolvePath;
root.resolvePath = (origin, target) =>
  target.startsWith("provost/") ? join(proto, target) : resolvePath(origin, target);
root.loadSync(files, { keepCase: false }).resolveAll();
writeFileSync(
  join(out, "description.ts"),
  `export const description = ${JSON.stringify(root.toJSON(), null, 1)};\n`,
);
