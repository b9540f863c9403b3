"""Starts a server in the background, reads its output until it is ready, uses it, and stops it."""

import asyncio

import provost

SERVER = "python3 -u -m http.server 8123 --bind 127.0.0.1"
CLIENT = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8123/').status)"


async def main() -> None:
    async with provost.AsyncGateway() as gateway:
        async with await gateway.open_session(["."]) as session:
            async with await session.create(shell_line=SERVER, idle_limit=600) as server:
                async for piece in server.attach():
                    if isinstance(piece, provost.Chunk) and b"Serving HTTP" in piece.data:
                        break
                # The session is one machine: its commands share the loopback interface.
                result = await session.run("python3", "-c", CLIENT)
                print(result.output.decode(), end="")


asyncio.run(main())
