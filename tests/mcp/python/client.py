"""The official Python client of MCP against `provost mcp`: PROGRAM GATEWAY WORKSPACE, or URL TOKEN_FILE WORKSPACE for one on HTTP."""

import asyncio
import pathlib
import sys

import httpx2 as httpx
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

SERVER, GATEWAY, WORKSPACE = sys.argv[1:]
TOOLS = ["run_command", "start_command", "read_output", "wait_command", "write_input", "kill_command", "list_commands"]


def text(result):
    return result.content[0].text


async def checks(client):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == TOOLS, tools
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
    print("tools")

    ran = await client.call_tool("run_command", {"command": "echo out; echo err >&2; exit 3"})
    assert text(ran) == "exit code 3\noutput (8 bytes):\nout\nerr\n", ran
    assert not ran.is_error and ran.meta["provost"]["exit_code"] == 3, ran
    print("run")

    started = await client.call_tool("start_command", {"command": "cat", "open_stdin": True})
    ident = started.meta["provost"]["id"]
    await client.call_tool("write_input", {"id": ident, "text": "typed\n", "eof": True})
    assert text(await client.call_tool("wait_command", {"id": ident})).endswith("typed\n")
    read = await client.call_tool("read_output", {"id": ident, "offset": 2})
    assert text(read).endswith("output:\nped\n"), read
    print("background")

    denied = await client.call_tool("run_command", {"command": "touch published"})
    assert denied.is_error and "it is for people" in text(denied) and "no-publishing" in text(denied), denied
    print("denied")

    told = []

    async def progress(done, total, message):
        told.append(message)
        if len(told) == 2:
            (pathlib.Path(WORKSPACE) / "go").touch()

    waits = {"command": "until [ -e go ]; do sleep 0.05; done"}
    ended = await client.call_tool("run_command", waits, progress_callback=progress)
    assert text(ended).startswith("exit code 0") and len(told) >= 2, (ended, told)
    print("progress")

    task = asyncio.create_task(client.call_tool("run_command", {"command": "touch began; sleep 1000"}))
    while not (pathlib.Path(WORKSPACE) / "began").exists():
        await asyncio.sleep(0.01)
    task.cancel()
    while "still running" in text(await client.call_tool("list_commands", {})):
        await asyncio.sleep(0.01)
    print("cancelled")


async def main():
    if SERVER.startswith("http://"):
        token = pathlib.Path(GATEWAY).read_text().strip()
        http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=100)
        server = streamable_http_client(SERVER, http_client=http)
    else:
        arguments = ["mcp", "--gateway", GATEWAY, "--root", WORKSPACE]
        server = StdioServerParameters(command=SERVER, args=arguments)
    async with asyncio.timeout(100):
        async with Client(server) as client:
            await checks(client)


asyncio.run(main())
