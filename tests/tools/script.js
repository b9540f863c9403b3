// What a build script does: files, streams, hashes, a child process, a server on the loopback, a worker thread.
'use strict';

const { createHash } = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const { execFileSync } = require('node:child_process');
const { gunzipSync, gzipSync } = require('node:zlib');
const { Worker } = require('node:worker_threads');

async function main() {
  const bytes = Buffer.from(Array.from({ length: 1 << 20 }, (_, n) => (n * 31) & 255));
  fs.mkdirSync('out/deep', { recursive: true });
  fs.writeFileSync('out/deep/bytes', bytes);
  fs.writeFileSync('out/bytes.gz', gzipSync(bytes));
  const again = gunzipSync(fs.readFileSync('out/bytes.gz'));
  console.log(createHash('sha256').update(again).digest('hex'));

  const child = execFileSync(process.execPath, ['-p', '6 * 7'], { encoding: 'utf8' });
  console.log(child.trim());

  const server = http.createServer((_, answer) => answer.end('served'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
  console.log(await answer.text());
  server.closeAllConnections();
  server.close();

  const worker = new Worker("require('node:worker_threads').parentPort.postMessage('worked')", { eval: true });
  const [message] = await once(worker, 'message');
  console.log(message);
  console.error('done');
}

main();
