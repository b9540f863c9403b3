// Validates what the shim wrote against the protocol's own JSON schema, as the official npm SDK ships it:
//
//     node validate.mjs TO_EDITOR TO_AGENT
//
// The two files are the lines that the shim wrote to the editor and to the agent. Answers are known by the requests
// of the other side, which are in the other file: all that one side asks passes through the shim or is answered by it.
// Requests that the shim answers itself appear in neither, so the shape of their answers tells what they are.
// Prints a line for each message that is not valid, and a count.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import Ajv from 'ajv/dist/2020.js';

const require = createRequire(import.meta.url);
const packageFile = require.resolve('@agentclientprotocol/sdk').split('/dist/')[0];
const schema = JSON.parse(readFileSync(`${packageFile}/schema/v1/schema.json`, 'utf8'));

const ajv = new Ajv({ strict: false, allErrors: false, validateFormats: false });
ajv.addSchema({ ...schema, $id: 'acp' });
const definition = (name) => ajv.getSchema(`acp#/$defs/${name}`);

// Method to the names of the definitions of its parameters and result, from the schema's own marks.
const named = { request: {}, response: {}, notification: {} };
for (const [name, { 'x-method': method }] of Object.entries(schema.$defs)) {
  if (!method) continue;
  if (name.endsWith('Request')) named.request[method] = name;
  else if (name.endsWith('Response')) named.response[method] = name;
  else if (name.endsWith('Notification')) named.notification[method] = name;
}

const [toEditor, toAgent] = process.argv.slice(2).map((file) => {
  const text = readFileSync(file, 'utf8');
  if (text.length > 0 && !text.endsWith('\n')) throw new Error(`${file} does not end with a line's end`);
  return text.split('\n').filter((line) => line.length > 0);
});

let wrong = 0;
function complain(line, why) {
  wrong += 1;
  console.log(`${why}: ${line.slice(0, 400)}`);
}

function check(line, name, value) {
  const validate = definition(name);
  if (!validate) return complain(line, `the schema has no ${name}`);
  if (!validate(value)) complain(line, `no ${name} (${ajv.errorsText(validate.errors)})`);
}

// The requests that each side has been sent, by their ids: their answers go the other way.
function requests(lines) {
  const asked = new Map();
  for (const line of lines) {
    const message = JSON.parse(line);
    if (message.method && 'id' in message) asked.set(JSON.stringify(message.id), message.method);
  }
  return asked;
}

const TERMINAL_RESULTS = ['terminal/create', 'terminal/output', 'terminal/wait_for_exit', 'terminal/kill'];

function checkAll(lines, askedOfTheOther) {
  for (const line of lines) {
    let message;
    try {
      message = JSON.parse(line);
    } catch (error) {
      complain(line, `no JSON (${error.message})`);
      continue;
    }
    if (message.jsonrpc !== '2.0') complain(line, 'no JSON-RPC 2.0');
    if (message.method) {
      const names = 'id' in message ? named.request : named.notification;
      if (names[message.method]) check(line, names[message.method], message.params);
      else if (!message.method.startsWith('_')) complain(line, `the schema has no ${message.method}`);
    } else if ('error' in message) {
      check(line, 'Error', message.error);
      if ('result' in message) complain(line, 'a result and an error');
    } else if ('result' in message) {
      const method = askedOfTheOther.get(JSON.stringify(message.id));
      if (method) {
        if (named.response[method]) check(line, named.response[method], message.result);
      } else {
        checkTerminalResult(line, message.result);
      }
    } else {
      complain(line, 'neither a request nor an answer');
    }
  }
}

// An answer that the shim has given by itself: it fits one of the terminal methods, by its fields.
function checkTerminalResult(line, result) {
  const method =
    'terminalId' in result
      ? TERMINAL_RESULTS[0]
      : 'output' in result
        ? TERMINAL_RESULTS[1]
        : 'exitCode' in result || 'signal' in result
          ? TERMINAL_RESULTS[2]
          : TERMINAL_RESULTS[3];
  check(line, named.response[method], result);
  const known = { ...schema.$defs[named.response[method]].properties };
  for (const field of Object.keys(result)) if (!(field in known)) complain(line, `${method} has no ${field}`);
}

checkAll(toEditor, requests(toAgent));
checkAll(toAgent, requests(toEditor));
console.log(`${toEditor.length + toAgent.length} messages, ${wrong} wrong`);
process.exit(wrong === 0 && toEditor.length > 0 && toAgent.length > 0 ? 0 : 1);
