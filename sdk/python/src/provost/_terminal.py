"""A command, from its start until its release, for asyncio.

Output is read by offset. When a gateway goes away, reading goes on at the next one with the first byte that has not been
read, so that no byte is lost or doubled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from google.protobuf.duration_pb2 import Duration

from ._connection import Connection, Method
from ._opening import Closing
from .errors import GatewayUnavailable, NotFound, OutputLost, ProvostError, is_outage
from .types import Chunk, Gap, Outcome, Stream, TerminalInfo
from .v1 import terminals_pb2 as terminals

_GET = Method("Terminals/GetTerminal", terminals.GetTerminalRequest, terminals.GetTerminalResponse)
_OUTPUT = Method("Terminals/GetOutput", terminals.GetOutputRequest, terminals.GetOutputResponse)
_STREAM = Method("Terminals/StreamOutput", terminals.StreamOutputRequest, terminals.StreamOutputResponse)
_WAIT = Method("Terminals/WaitForExit", terminals.WaitForExitRequest, terminals.WaitForExitResponse)
_SIGNAL = Method("Terminals/SignalTerminal", terminals.SignalTerminalRequest, terminals.SignalTerminalResponse)
_KILL = Method("Terminals/KillTerminal", terminals.KillTerminalRequest, terminals.KillTerminalResponse)
_RELEASE = Method(
    "Terminals/ReleaseTerminal", terminals.ReleaseTerminalRequest, terminals.ReleaseTerminalResponse
)
_WRITE = Method("Terminals/WriteInput", terminals.WriteInputRequest, terminals.WriteInputResponse)

#: One write of ``write``: a request of the gateway has at most 3 MiB.
_WRITE_BYTES_MAX = 1 << 20


class AsyncTerminal(Closing):
    """A command, from its start until its release."""

    def __init__(self, connection: Connection, session_id: str, terminal_id: str) -> None:
        self._connection = connection
        self._session_id = session_id
        #: Such as ``term_01K...``.
        self.id = terminal_id

    async def _leave(self) -> None:
        await self.release()

    async def info(self) -> TerminalInfo:
        """Its present state."""
        request = terminals.GetTerminalRequest(terminal_id=self.id, session_id=self._session_id)
        answer = await self._connection.call(_GET, request)
        return TerminalInfo.of(answer.terminal)

    async def attach(
        self, offset: int = 0, *, stream: Stream = Stream.STDOUT, follow: bool = True
    ) -> AsyncGenerator[Chunk | Gap]:
        """The output from ``offset`` on, to the end of the command, or to what is there now without ``follow``."""
        outage = self._connection.outage()
        while True:
            request = terminals.StreamOutputRequest(
                terminal_id=self.id,
                session_id=self._session_id,
                stream=terminals.OutputStream.Name(stream.value),
                offset=offset,
                follow=follow,
            )
            failure: ProvostError = GatewayUnavailable("the gateway has ended the stream")
            # Read to its end, the call leaves nothing behind that a fork would have to wait for.
            at_end = False
            try:
                async with aclosing(self._connection.stream(_STREAM, request)) as events:
                    async for event in events:
                        kind = event.WhichOneof("event")
                        if kind == "chunk":
                            outage.over()
                            # A byte that was read before is not given again.
                            data = event.chunk.data[max(0, offset - event.chunk.offset) :]
                            start = max(offset, event.chunk.offset)
                            offset = start + len(data)
                            if data:
                                yield Chunk(stream, start, data)
                        elif kind == "gap":
                            outage.over()
                            start, offset = event.gap.from_offset, event.gap.to_offset
                            yield Gap(stream, start, offset)
                        elif event.end.output_lost:
                            raise OutputLost("the sandbox has ended, and its output with it", reason="OUTPUT_LOST")
                        elif not follow or event.end.state != terminals.TERMINAL_STATE_RUNNING:
                            at_end = True
            except ProvostError as error:
                if not at_end and not is_outage(error):
                    raise
                failure = error
            if at_end:
                return
            await outage.wait(failure)

    async def output(self, *, stream: Stream = Stream.STDOUT) -> tuple[bytes, bool]:
        """The output that the gateway keeps, and whether any was dropped before it."""
        request = terminals.GetOutputRequest(
            terminal_id=self.id,
            session_id=self._session_id,
            stream=terminals.OutputStream.Name(stream.value),
        )
        answer = await self._connection.call(_OUTPUT, request)
        return answer.data, answer.truncated

    async def wait(self, timeout: float | None = None) -> Outcome:
        """Waits for the end of the command. ``DeadlineExceeded``: it still runs after ``timeout`` seconds."""
        request = terminals.WaitForExitRequest(terminal_id=self.id, session_id=self._session_id)
        outage = self._connection.outage()
        while True:
            answer = await self._connection.call(_WAIT, request, timeout=timeout)
            if answer.HasField("outcome"):
                return Outcome.of(answer.outcome)
            if answer.state == terminals.TERMINAL_STATE_RELEASED:
                raise NotFound("the terminal was released")
            # The gateway ends, and the command does not.
            await outage.wait(GatewayUnavailable("the gateway has ended the call"))

    async def write(self, data: bytes, *, eof: bool = False) -> int:
        """Writes to stdin, and closes it after ``eof``. Returns how many bytes the command's stdin took.

        A write is never repeated: when the gateway goes away in the middle, it is unknown how much was written.
        """
        written = 0
        while True:
            piece = data[written : written + _WRITE_BYTES_MAX]
            is_last = written + len(piece) == len(data)
            request = terminals.WriteInputRequest(
                terminal_id=self.id, session_id=self._session_id, data=piece, eof=eof and is_last
            )
            answer = await self._connection.call(_WRITE, request, repeatable=False)
            written += answer.written_bytes
            if is_last or answer.written_bytes < len(piece):
                return written

    async def signal(self, name: str) -> None:
        """Sends a signal, such as ``"SIGINT"`` or ``"2"``, to the process group of the main process."""
        request = terminals.SignalTerminalRequest(
            terminal_id=self.id, session_id=self._session_id, signal=name
        )
        await self._connection.call(_SIGNAL, request, repeatable=False)

    async def kill(self, *, grace: float | None = None) -> None:
        """Starts to stop all processes: TERM, and KILL after ``grace`` seconds. ``wait`` returns at their end."""
        request = terminals.KillTerminalRequest(
            terminal_id=self.id, session_id=self._session_id, grace=duration(grace)
        )
        await self._connection.call(_KILL, request)

    async def release(self, *, grace: float | None = None) -> None:
        """Stops the command if it runs, and frees the terminal. Returns when nothing is left."""
        request = terminals.ReleaseTerminalRequest(
            terminal_id=self.id, session_id=self._session_id, grace=duration(grace)
        )
        try:
            await self._connection.call(_RELEASE, request)
        except NotFound:
            pass  # It has been released.


def duration(seconds: float | None) -> Duration | None:
    """Seconds as the API writes them."""
    if seconds is None:
        return None
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message
