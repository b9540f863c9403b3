// An editor written with the official npm SDK:
//
//     node editor.mjs REPORT KIND WORKSPACE SCENARIO,... COMMAND [ARG]...
//
// It starts COMMAND as its agent, opens a session for each scenario, prompts with its name, and writes what it saw to
// REPORT. KIND is `plain` or `streaming`: whether it takes terminal output in `_meta`.

import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

const { methods } = acp;
const [reportFile, kind, workspace, names, ...command] = process.argv.slice(2);
const report = { verdicts: {}, permissions: [], updates: [], foreign: [] };
const scenarios = new Map();

const child = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
const ended = new Promise((resolve) => child.on('exit', resolve));

const editor = acp
  .client({ name: 'provost-tests' })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    const scenario = scenarios.get(params.sessionId);
    report.permissions.push({ scenario, ...params });
    const wanted = scenario === 'rejected' ? 'reject' : 'allow';
    const option = params.options.find(({ kind: optionKind }) => optionKind.startsWith(wanted));
    return { outcome: { outcome: 'selected', optionId: option.optionId } };
  })
  .onNotification(methods.client.session.update, ({ params }) => {
    const scenario = scenarios.get(params.sessionId);
    report.updates.push({ scenario, ...params });
    const { update } = params;
    if (update.toolCallId === 'call-live' && JSON.stringify(update).includes('line 1')) {
      writeFileSync(`${workspace}/${scenario}/was-shown`, '');
    }
    if (update.sessionUpdate === 'agent_message_chunk') {
      report.verdicts[scenario] = (report.verdicts[scenario] ?? '') + update.content.text;
    }
  })
  .onRequest('*', ({ method }) => {
    report.foreign.push(method);
    throw acp.RequestError.methodNotFound(method);
  });

await editor.connectWith(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (agent) => {
  const clientCapabilities = { fs: { readTextFile: false, writeTextFile: false }, terminal: false };
  if (kind === 'streaming') clientCapabilities._meta = { terminal_output: true };
  report.initialized = await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities });
  for (const name of names.split(',')) {
    const cwd = `${workspace}/${name}`;
    mkdirSync(cwd, { recursive: true });
    const { sessionId } = await agent.request(methods.agent.session.new, { cwd, mcpServers: [] });
    scenarios.set(sessionId, name);
    const answer = await agent.request(methods.agent.session.prompt, {
      sessionId,
      prompt: [{ type: 'text', text: name }],
    });
    report.stopReason = answer.stopReason;
    if (report.initialized.agentCapabilities?.sessionCapabilities?.close) {
      await agent.request(methods.agent.session.close, { sessionId });
    }
  }
});
child.stdin.end();
report.status = await ended;
writeFileSync(reportFile, JSON.stringify(report));
process.exit(0);
