"""An agent written with the official PyPI SDK. The text of a prompt names what it does with the client's terminals;
its last message says `PASSED` or `FAILED` and why."""

import asyncio
import os

import acp
from acp import schema
from acp.helpers import start_tool_call, tool_terminal_ref, update_agent_message_text, update_tool_call

SESSIONS = {}
LEFT = {}


def variable(name, value):
    return schema.EnvVariable(name=name, value=value)


def pick(status):
    return (status.exit_code, status.signal)


def equal(seen, expected, what=""):
    assert seen == expected, f"{what} saw {seen!r}, expected {expected!r}"


async def refused(awaitable, code=None):
    try:
        value = await awaitable
    except acp.RequestError as error:
        assert code is None or error.code == code, f"refused with {error.code}: {error}"
        assert len(str(error)) > 4, "a refusal says something"
        return error
    raise AssertionError(f"expected a refusal, got {value!r}")


class Tools:
    """What a scenario works with."""

    def __init__(self, client, session):
        self.client, self.session, self.cwd = client, session, SESSIONS[session]

    async def create(self, command, args=None, **more):
        answer = await self.client.create_terminal(session_id=self.session, command=command, args=args, **more)
        return answer.terminal_id

    async def output(self, terminal):
        return await self.client.terminal_output(session_id=self.session, terminal_id=terminal)

    async def wait(self, terminal):
        return await self.client.wait_for_terminal_exit(session_id=self.session, terminal_id=terminal)

    async def kill(self, terminal):
        return await self.client.kill_terminal(session_id=self.session, terminal_id=terminal)

    async def release(self, terminal):
        return await self.client.release_terminal(session_id=self.session, terminal_id=terminal)

    async def update(self, update):
        await self.client.session_update(session_id=self.session, update=update)

    async def show(self, call, terminal):
        content = [tool_terminal_ref(terminal)]
        await self.update(start_tool_call(call, "a command", kind="execute", status="in_progress", content=content))

    async def output_of(self, command, args=None, **more):
        terminal = await self.create(command, args, **more)
        await self.wait(terminal)
        output = await self.output(terminal)
        await self.release(terminal)
        return output.output

    async def raw(self, method, params):
        """A request that the SDK would not send."""
        return await self.client._conn.send_request(method, params)


async def exchange(t):
    terminal = await t.create("sh", ["-c", "echo to-stdout; echo to-stderr >&2; exit 3"])
    await t.show("call-exchange", terminal)
    equal(pick(await t.wait(terminal)), (3, None))
    output = await t.output(terminal)
    equal((output.output, output.truncated), ("to-stdout\nto-stderr\n", False))
    equal(pick(output.exit_status), (3, None))
    await t.kill(terminal)
    await t.release(terminal)
    await t.update(update_tool_call("call-exchange", status="failed"))


async def parameters(t):
    os.makedirs(f"{t.cwd}/inner", exist_ok=True)
    line = 'printf "%s %s" "${VALUE-unset}" "${PWD##*/}"'
    for combination in range(16):
        def has(bit, combination=combination):
            return combination & (1 << bit) != 0

        command, args, more = (("sh", ["-c", line], {}) if has(0) else (line, None, {}))
        if has(1):
            more["env"] = [variable("VALUE", "sé t")]
        if has(2):
            more["cwd"] = f"{t.cwd}/inner"
        if has(3):
            more["output_byte_limit"] = 4
        whole = f"{'sé t' if has(1) else 'unset'} {'inner' if has(2) else os.path.basename(t.cwd)}"
        terminal = await t.create(command, args, **more)
        await t.wait(terminal)
        output = await t.output(terminal)
        equal((output.output, output.truncated), (whole[-4:] if has(3) else whole, has(3)), f"{combination}")
        await t.release(terminal)


async def forms(t):
    for command, args in [
        ("cd / && pwd | tr / x", None),
        ("cd / && pwd | tr / x", []),
        ("/bin/bash", ["-c", f"cd '{t.cwd}' && cd / && pwd | tr / x"]),
        ("/bin/sh", ["-c", "echo x"]),
        ("echo", ["x"]),
    ]:
        equal(await t.output_of(command, args), "x\n", command)


async def errors(t):
    unknown = "term_00000000000000000000000000"
    for call in (t.output, t.wait, t.kill, t.release):
        await refused(call(unknown), -32002)
    for params in (
        {},
        {"command": "pwd", "cwd": "relative"},
        {"command": "pwd", "outputByteLimit": -1},
        {"command": "pwd", "args": "x"},
        {"command": "pwd", "env": {"A": "b"}},
    ):
        await refused(t.raw("terminal/create", {"sessionId": t.session, **params}), -32602)
    await refused(t.raw("terminal/no_such_method", {"sessionId": t.session}), -32601)
    missing = await refused(t.create("no-such-program", ["x"]))
    assert "no-such-program" in str(missing), str(missing)


async def denied(t):
    error = await refused(t.create("shred", ["x"]))
    assert error.code != -32000 and "nothing is shredded here" in str(error), f"{error.code} {error}"
    error = await refused(t.create("echo x && shred x"))
    assert "nothing is shredded here" in str(error), str(error)


async def asked(t):
    equal(await t.output_of("factor", ["21"]), "21: 3 7\n")


async def rejected(t):
    error = await refused(t.create("factor", ["35"]))
    assert "factors are for grown-ups" in str(error), str(error)


async def timeout(t):
    terminal = await t.create("sh", ["-c", "echo begun; sleep 100; echo never"])
    await t.show("call-timeout", terminal)
    while (await t.output(terminal)).output != "begun\n":
        await asyncio.sleep(0.02)
    wait = asyncio.create_task(t.wait(terminal))
    done, _ = await asyncio.wait([wait], timeout=0.3)
    assert not done, "the wait was answered before its time"
    await t.kill(terminal)
    ended = await wait
    equal(pick(ended), (143, "SIGTERM"))
    output = await t.output(terminal)
    equal((output.output, pick(output.exit_status)), ("begun\n", pick(ended)))
    await t.release(terminal)
    await refused(t.output(terminal), -32002)


async def many(t):
    script = "sleep 0.2; echo number {0}; exit {0}"
    terminals = await asyncio.gather(*(t.create("sh", ["-c", script.format(n)]) for n in range(20)))
    equal(len(set(terminals)), 20)

    async def follow(n, terminal):
        for status in await asyncio.gather(*(t.wait(terminal) for _ in range(5))):
            equal(pick(status), (n, None))
        equal((await t.output(terminal)).output, f"number {n}\n")
        await t.release(terminal)

    await asyncio.gather(*(follow(n, terminal) for n, terminal in enumerate(terminals)))


async def waiting_release(t):
    terminal = await t.create("sleep", ["100"])
    waits = [asyncio.create_task(t.wait(terminal)) for _ in range(5)]
    await t.output(terminal)
    await t.release(terminal)
    for answer in await asyncio.gather(*waits, return_exceptions=True):
        assert getattr(answer, "exit_code", None) != 0, f"{answer!r}"


async def cancelled(t):
    terminal = await t.create("sleep", ["100"])
    connection = t.client._conn
    request = connection._next_request_id
    wait = asyncio.create_task(t.wait(terminal))
    await asyncio.sleep(0)
    await t.output(terminal)
    await connection.send_notification("$/cancel_request", {"requestId": request})
    await refused(wait, -32800)
    await t.kill(terminal)
    equal((await t.wait(terminal)).signal, "SIGTERM")
    await t.release(terminal)


async def text(t):
    equal(await t.output_of("/usr/bin/printf", ["🦀🦀🦀🦀"], output_byte_limit=10), "🦀🦀")
    equal(await t.output_of("/usr/bin/printf", ["x\\000\\033[1m\\377y"]), "x\0\x1b[1m\ufffdy")
    equal(await t.output_of("/usr/bin/printf", ["xyz"], output_byte_limit=0), "")


async def live(t):
    # It goes on when its first line was seen in the editor.
    line = "echo line 1; until [ -e was-shown ]; do sleep 0.05; done; for i in 2 3 4 5 6; do echo line $i; done"
    terminal = await t.create("sh", ["-c", line])
    await t.show("call-live", terminal)
    await t.wait(terminal)
    await t.release(terminal)
    await t.update(update_tool_call("call-live", status="completed"))


async def leave_running(t):
    LEFT["left"] = (await t.create("sh", ["-c", 'trap "" HUP; sleep 100 & sleep 100']), t.session)


async def look_at_left(t):
    terminal, session = LEFT["left"]
    await refused(t.client.terminal_output(session_id=session, terminal_id=terminal), -32002)


async def by_itself(t):
    await t.update(start_tool_call("call-by-itself", "ls", kind="execute", status="in_progress"))
    await t.update(update_tool_call("call-by-itself", status="completed"))


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        exchange,
        parameters,
        forms,
        errors,
        denied,
        asked,
        rejected,
        timeout,
        many,
        waiting_release,
        cancelled,
        text,
        live,
        leave_running,
        look_at_left,
        by_itself,
    )
}


class Agent:
    def on_connect(self, client):
        self.client = client

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **kwargs):
        assert client_capabilities.terminal is True and protocol_version == 1
        return acp.InitializeResponse(
            protocol_version=1,
            agent_capabilities=schema.AgentCapabilities(
                session_capabilities=schema.SessionCapabilities(close=schema.SessionCloseCapabilities())
            ),
        )

    async def new_session(self, cwd, mcp_servers=None, **kwargs):
        session = f"session-{len(SESSIONS) + 1}"
        SESSIONS[session] = cwd
        return acp.NewSessionResponse(session_id=session)

    async def close_session(self, session_id, **kwargs):
        return schema.CloseSessionResponse()

    async def prompt(self, session_id, prompt, **kwargs):
        name = "".join(block.text for block in prompt)
        t = Tools(self.client, session_id)
        verdict = "PASSED"
        try:
            await SCENARIOS[name](t)
        except Exception as error:
            verdict = f"FAILED {name}: {type(error).__name__} {error}"
        await t.update(update_agent_message_text(verdict))
        return acp.PromptResponse(stop_reason="end_turn")


asyncio.run(acp.run_agent(Agent(), use_unstable_protocol=True))
