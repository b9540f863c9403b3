// An agent written with the official npm SDK. The text of a prompt names what it does with the client's terminals;
// its last message says `PASSED` or `FAILED` and why.

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

const { methods } = acp;
const sessions = new Map();
const leftRunning = new Map();

const scenarios = {
  async exchange(t) {
    const terminal = await t.create({ command: 'sh', args: ['-c', 'echo to-stdout; echo to-stderr >&2; exit 3'] });
    await t.show('call-exchange', terminal);
    assert.deepEqual(pick(await terminal.waitForExit()), { exitCode: 3, signal: null });
    const output = await terminal.currentOutput();
    assert.equal(output.output, 'to-stdout\nto-stderr\n');
    assert.equal(output.truncated, false);
    assert.deepEqual(pick(output.exitStatus), { exitCode: 3, signal: null });
    await terminal.kill();
    await terminal.release();
    await t.update({ sessionUpdate: 'tool_call_update', toolCallId: 'call-exchange', status: 'failed' });
  },

  async parameters(t) {
    mkdirSync(`${t.cwd}/inner`, { recursive: true });
    for (let combination = 0; combination < 16; combination += 1) {
      const has = (bit) => (combination & (1 << bit)) !== 0;
      const params = { command: 'printf "%s %s" "${VALUE-unset}" "${PWD##*/}"' };
      if (has(0)) Object.assign(params, { command: 'sh', args: ['-c', 'printf "%s %s" "${VALUE-unset}" "${PWD##*/}"'] });
      if (has(1)) params.env = [{ name: 'VALUE', value: 'sé t' }];
      if (has(2)) params.cwd = `${t.cwd}/inner`;
      if (has(3)) params.outputByteLimit = 4;
      const whole = `${has(1) ? 'sé t' : 'unset'} ${has(2) ? 'inner' : t.cwd.split('/').at(-1)}`;
      const terminal = await t.create(params);
      await terminal.waitForExit();
      const { output, truncated } = await terminal.currentOutput();
      assert.deepEqual([output, truncated], [has(3) ? whole.slice(-4) : whole, has(3)], JSON.stringify(params));
      await terminal.release();
    }
  },

  async forms(t) {
    for (const params of [
      { command: 'cd / && pwd | tr / x' },
      { command: 'cd / && pwd | tr / x', args: [] },
      { command: '/bin/bash', args: ['-c', `cd '${t.cwd}' && cd / && pwd | tr / x`] },
      { command: '/bin/sh', args: ['-c', 'echo x'] },
      { command: 'echo', args: ['x'] },
    ]) {
      assert.equal(await t.outputOf(params), 'x\n', JSON.stringify(params));
    }
  },

  async errors(t) {
    const named = { sessionId: t.sessionId, terminalId: 'term_00000000000000000000000000' };
    for (const method of ['output', 'waitForExit', 'kill', 'release']) {
      await refused(t.client.request(methods.client.terminal[method], named), -32002);
    }
    const create = (params) => t.client.request('terminal/create', { sessionId: t.sessionId, ...params });
    await refused(create({}), -32602);
    await refused(create({ command: 'pwd', cwd: 'relative' }), -32602);
    await refused(create({ command: 'pwd', outputByteLimit: -1 }), -32602);
    await refused(create({ command: 'pwd', args: 'x' }), -32602);
    await refused(create({ command: 'pwd', env: { A: 'b' } }), -32602);
    await refused(t.client.request('terminal/no_such_method', named), -32601);
    const missing = await refused(create({ command: 'no-such-program', args: ['x'] }));
    assert.match(missing.message, /no-such-program/);
  },

  async denied(t) {
    const error = await refused(t.create({ command: 'shred', args: ['x'] }));
    assert.notEqual(error.code, -32000);
    assert.match(error.message, /nothing is shredded here/);
    const inLine = await refused(t.create({ command: 'echo x && shred x' }));
    assert.match(inLine.message, /nothing is shredded here/);
  },

  async asked(t) {
    assert.equal(await t.outputOf({ command: 'factor', args: ['21'] }), '21: 3 7\n');
  },

  async rejected(t) {
    const error = await refused(t.create({ command: 'factor', args: ['35'] }));
    assert.match(error.message, /factors are for grown-ups/);
  },

  async timeout(t) {
    const terminal = await t.create({ command: 'sh', args: ['-c', 'echo begun; sleep 100; echo never'] });
    await t.show('call-timeout', terminal);
    await until(async () => (await terminal.currentOutput()).output === 'begun\n');
    const wait = terminal.waitForExit();
    assert.equal(await Promise.race([wait.then(() => 'ended'), sleep(300).then(() => 'timed out')]), 'timed out');
    await terminal.kill();
    const exit = await wait;
    assert.deepEqual(pick(exit), { exitCode: 143, signal: 'SIGTERM' });
    const output = await terminal.currentOutput();
    assert.equal(output.output, 'begun\n');
    assert.deepEqual(pick(output.exitStatus), pick(exit));
    await terminal.release();
    await refused(terminal.currentOutput(), -32002);
  },

  async many(t) {
    const numbers = Array.from({ length: 20 }, (_, n) => n);
    const terminals = await Promise.all(
      numbers.map((n) => t.create({ command: 'sh', args: ['-c', `sleep 0.2; echo number ${n}; exit ${n}`] })),
    );
    assert.equal(new Set(terminals.map((terminal) => terminal.id)).size, 20);
    await Promise.all(
      terminals.map(async (terminal, n) => {
        const waits = await Promise.all(Array.from({ length: 5 }, () => terminal.waitForExit()));
        for (const wait of waits) assert.deepEqual(pick(wait), { exitCode: n, signal: null });
        assert.equal((await terminal.currentOutput()).output, `number ${n}\n`);
        await terminal.release();
      }),
    );
  },

  async waiting_release(t) {
    const terminal = await t.create({ command: 'sleep', args: ['100'] });
    const waits = Array.from({ length: 5 }, () => terminal.waitForExit().catch((error) => error));
    await terminal.currentOutput();
    await terminal.release();
    for (const wait of await Promise.all(waits)) assert.notEqual(wait.exitCode, 0);
  },

  async cancelled(t) {
    const terminal = await t.create({ command: 'sleep', args: ['100'] });
    const controller = new AbortController();
    const options = { cancellationSignal: controller.signal };
    const params = { sessionId: t.sessionId, terminalId: terminal.id };
    const wait = t.client.request(methods.client.terminal.waitForExit, params, options).catch((error) => error);
    await terminal.currentOutput();
    controller.abort();
    assert.equal((await wait).code, -32800);
    await terminal.kill();
    assert.equal((await terminal.waitForExit()).signal, 'SIGTERM');
    await terminal.release();
    const creating = new AbortController();
    // A session is one machine to its commands: the next one sees what is left of this.
    const create = { sessionId: t.sessionId, command: 'sleep', args: ['313373'] };
    const created = t.client
      .request(methods.client.terminal.create, create, { cancellationSignal: creating.signal })
      .catch((error) => error);
    creating.abort();
    const answer = await created;
    if (answer.terminalId) {
      await t.client.request(methods.client.terminal.release, { sessionId: t.sessionId, terminalId: answer.terminalId });
    } else {
      assert.equal(answer.code, -32800);
    }
    const left = 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" "\\n" | grep -c "^31337[3]$"';
    await until(async () => (await t.outputOf({ command: 'sh', args: ['-c', left] })) === '0\n');
  },

  async text(t) {
    const limited = { command: '/usr/bin/printf', args: ['🦀🦀🦀🦀'], outputByteLimit: 10 };
    assert.equal(await t.outputOf(limited), '🦀🦀');
    assert.equal(await t.outputOf({ command: '/usr/bin/printf', args: ['x\\000\\033[1m\\377y'] }), 'x\u0000\u001b[1m\ufffdy');
    assert.equal(await t.outputOf({ command: '/usr/bin/printf', args: ['xyz'], outputByteLimit: 0 }), '');
  },

  async live(t) {
    // It goes on when its first line was seen in the editor.
    const line = 'echo line 1; until [ -e was-shown ]; do sleep 0.05; done; for i in 2 3 4 5 6; do echo line $i; done';
    const terminal = await t.create({ command: 'sh', args: ['-c', line] });
    await t.show('call-live', terminal);
    await terminal.waitForExit();
    await terminal.release();
    await t.update({ sessionUpdate: 'tool_call_update', toolCallId: 'call-live', status: 'completed' });
  },

  async leave_running(t) {
    const terminal = await t.create({ command: 'sh', args: ['-c', 'trap "" HUP; sleep 100 & sleep 100'] });
    leftRunning.set('left', { terminal, sessionId: t.sessionId });
  },

  async look_at_left(t) {
    const { terminal } = leftRunning.get('left');
    await refused(terminal.currentOutput(), -32002);
    assert.notEqual(t.sessionId, leftRunning.get('left').sessionId);
  },

  async by_itself(t) {
    const call = { toolCallId: 'call-by-itself', title: 'ls', kind: 'execute', status: 'in_progress' };
    await t.update({ sessionUpdate: 'tool_call', ...call });
    await t.update({ sessionUpdate: 'tool_call_update', toolCallId: 'call-by-itself', status: 'completed' });
  },
};

function pick({ exitCode = null, signal = null }) {
  return { exitCode, signal };
}

// Waits for what must come; who runs this has a deadline.
async function until(holds) {
  while (!(await holds())) await sleep(20);
}

function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

async function refused(promise, code) {
  const outcome = await promise.then((value) => ({ value }), (error) => ({ error }));
  assert.ok(outcome.error, `expected a refusal, got ${JSON.stringify(outcome.value)}`);
  if (code !== undefined) assert.equal(outcome.error.code, code, outcome.error.message);
  assert.ok(outcome.error.message.length > 4, 'a refusal says something');
  return outcome.error;
}

function tools(client, sessionId) {
  const update = (change) => client.notify(methods.client.session.update, { sessionId, update: change });
  const create = (params) => client.createTerminal({ sessionId, ...params });
  return {
    client,
    sessionId,
    cwd: sessions.get(sessionId),
    update,
    create,
    show: (toolCallId, terminal) =>
      update({
        sessionUpdate: 'tool_call',
        toolCallId,
        title: 'a command',
        kind: 'execute',
        status: 'in_progress',
        content: [{ type: 'terminal', terminalId: terminal.id }],
      }),
    async outputOf(params) {
      const terminal = await create(params);
      await terminal.waitForExit();
      const { output } = await terminal.currentOutput();
      await terminal.release();
      return output;
    },
  };
}

async function prompt({ params, client }) {
  const name = params.prompt.map((block) => block.text ?? '').join('');
  const t = tools(client, params.sessionId);
  let verdict = 'PASSED';
  try {
    await scenarios[name](t);
  } catch (error) {
    verdict = `FAILED ${name}: ${error.code ?? ''} ${error.message}`;
  }
  await t.update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: verdict } });
  return { stopReason: 'end_turn' };
}

acp
  .agent({ name: 'provost-tests' })
  .onRequest(methods.agent.initialize, ({ params }) => {
    assert.equal(params.clientCapabilities?.terminal, true);
    assert.equal(params.protocolVersion, 1);
    return { protocolVersion: 1, agentCapabilities: { sessionCapabilities: { close: {} } } };
  })
  .onRequest(methods.agent.session.new, ({ params }) => {
    const sessionId = `session-${sessions.size + 1}`;
    sessions.set(sessionId, params.cwd);
    return { sessionId };
  })
  .onRequest(methods.agent.session.close, () => ({}))
  .onRequest(methods.agent.session.prompt, prompt)
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
