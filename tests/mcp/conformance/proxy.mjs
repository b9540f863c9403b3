// Adds the token to every request, because the conformance suite has no way to send one: URL TOKEN_FILE. Prints its own URL. Host and
// Origin are passed on as they are, but for this port, which stands for the server's. It serves until its stdin ends.

import { readFileSync } from "node:fs";
import http from "node:http";

const [server, tokenFile] = process.argv.slice(2);
const { hostname, port } = new URL(server);
const authorization = `Bearer ${readFileSync(tokenFile, "utf8").trim()}`;

const proxy = http.createServer((request, response) => {
  const own = `:${proxy.address().port}`;
  const headers = { ...request.headers, authorization };
  for (const name of ["host", "origin"]) {
    if (headers[name]?.endsWith(own)) headers[name] = `${headers[name].slice(0, -own.length)}:${port}`;
  }
  const { url: path, method } = request;
  const onward = http.request({ host: hostname, port, path, method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  request.pipe(onward);
});
proxy.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${proxy.address().port}/mcp`));
process.stdin.resume().on("end", () => process.exit(0));
