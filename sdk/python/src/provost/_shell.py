"""A shell that is kept, and runs line after line, for asyncio.

A line is never sent twice: when the gateway goes away in the middle, the line goes on in its shell, and how it ends is
not known here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Unpack

from ._connection import Method
from ._runtime import shielded
from ._terminal import AsyncTerminal, duration
from .errors import GatewayUnavailable, ProvostError, is_outage
from .types import (
    Chunk,
    Gap,
    LineEnd,
    LineOptions,
    LineResult,
    LineStarted,
    LineWaits,
    OnAsk,
    ShellStatus,
    Stream,
)
from .v1 import terminals_pb2 as terminals

_RUN_LINE = Method("Terminals/RunLine", terminals.RunLineRequest, terminals.RunLineResponse)
_WRITE_LINE = Method(
    "Terminals/WriteLineInput", terminals.WriteLineInputRequest, terminals.WriteLineInputResponse
)
_INTERRUPT = Method("Terminals/InterruptLine", terminals.InterruptLineRequest, terminals.InterruptLineResponse)
_GET_SHELL = Method("Terminals/GetShell", terminals.GetShellRequest, terminals.GetShellResponse)

#: Of the output of ``run_line``, unless ``keep_bytes`` says otherwise.
KEEP_LINE_BYTES = 16 << 20

LineEvent = LineStarted | Chunk | Gap | LineWaits | LineEnd


class AsyncShell(AsyncTerminal):
    """A kept shell: a terminal in which lines run, one after the other. Directory, variables and functions stay."""

    async def stream_line(self, line: str, **options: Unpack[LineOptions]) -> AsyncGenerator[LineEvent]:
        """Runs a line: ``LineStarted``, its output as it comes, ``LineWaits`` when it waits for input, one ``LineEnd``.

        A generator that is closed before its end leaves the line running: ``interrupt`` ends it.
        """
        queue = options.get("queue", False)
        request = terminals.RunLineRequest(
            terminal_id=self.id,
            session_id=self._session_id,
            line=line,
            when_busy=terminals.WHEN_BUSY_QUEUE if queue else terminals.WHEN_BUSY_REFUSE,
            on_ask=terminals.OnAsk.Name(options.get("on_ask", OnAsk.WAIT).value),
            quiet_limit=duration(options.get("quiet_limit")),
        )
        line_id = ""
        end: LineEnd | None = None
        try:
            async with aclosing(self._connection.stream(_RUN_LINE, request)) as events:
                async for event in events:
                    kind = event.WhichOneof("event")
                    if kind == "started":
                        line_id = event.started.line_id
                        yield LineStarted(line_id, event.started.start_offset)
                    elif kind == "chunk":
                        yield Chunk(Stream.STDOUT, event.chunk.offset, event.chunk.data)
                    elif kind == "gap":
                        yield Gap(Stream.STDOUT, event.gap.from_offset, event.gap.to_offset)
                    elif kind == "waits":
                        yield LineWaits(line_id)
                    elif kind == "end":
                        end = LineEnd.of(event.end)
        except ProvostError as error:
            if not end and not is_outage(error):
                raise
            if not end:
                raise GatewayUnavailable(
                    error.message, code=error.code, reason=error.reason, metadata=error.metadata
                ) from None
        if not end:
            raise GatewayUnavailable("the gateway has ended the stream")
        yield end

    async def run_line(
        self,
        line: str,
        *,
        on_output: Callable[[Chunk], None] | None = None,
        keep_bytes: int = KEEP_LINE_BYTES,
        **options: Unpack[LineOptions],
    ) -> LineResult:
        """Runs a line to its end. ``on_output`` gets each piece of output as it comes. A cancelled call interrupts the line.

        ``keep_bytes``: how much output the result has; of longer output it has the tail.
        """
        tail = bytearray()
        truncated = False
        running = False
        try:
            async with aclosing(self.stream_line(line, **options)) as events:
                async for event in events:
                    running = not isinstance(event, LineEnd)
                    if isinstance(event, LineEnd):
                        return LineResult(event, bytes(tail), truncated)
                    if isinstance(event, Gap):
                        truncated = True
                    if isinstance(event, Chunk):
                        if on_output:
                            on_output(event)
                        tail += event.data
                        if len(tail) > keep_bytes:
                            del tail[: len(tail) - keep_bytes]
                            truncated = True
        except ProvostError:
            raise
        except BaseException:
            # Nobody waits for the line any more.
            if running:
                await shielded(self.interrupt())
            raise
        raise AssertionError("a line ends with LineEnd or with an error")

    async def write_line(self, line_id: str, data: bytes, *, eof: bool = False) -> None:
        """Writes to the program that a line runs: what a person would type, with ``\\r`` for Enter."""
        request = terminals.WriteLineInputRequest(
            terminal_id=self.id, session_id=self._session_id, line_id=line_id, data=data, eof=eof
        )
        await self._connection.call(_WRITE_LINE, request, repeatable=False)

    async def interrupt(self) -> None:
        """Does what Ctrl-C does: sends SIGINT to what runs in the foreground of the shell."""
        request = terminals.InterruptLineRequest(terminal_id=self.id, session_id=self._session_id)
        await self._connection.call(_INTERRUPT, request, repeatable=False)

    async def status(self) -> ShellStatus:
        """What the shell does now."""
        request = terminals.GetShellRequest(terminal_id=self.id, session_id=self._session_id)
        return ShellStatus.of(await self._connection.call(_GET_SHELL, request))
