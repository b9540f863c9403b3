"""The client for asyncio: gateway, session, terminal.

Output is read by offset. When a gateway goes away, reading goes on at the next one with the first byte that has not been
read, so that no byte is lost or doubled.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Unpack

from google.protobuf.duration_pb2 import Duration

from ._connection import Connection, Method
from .errors import GatewayUnavailable, NotFound, OutputLost, ProvostError, is_outage
from .types import (
    Approval,
    Chunk,
    CommandOptions,
    CreateOptions,
    Exit,
    Gap,
    OnAsk,
    Outcome,
    Result,
    SessionOptions,
    Stream,
    TerminalInfo,
)
from .v1 import approvals_pb2 as approvals
from .v1 import sessions_pb2 as sessions
from .v1 import terminals_pb2 as terminals

_CREATE_SESSION = Method(
    "Sessions/CreateSession", sessions.CreateSessionRequest, sessions.CreateSessionResponse
)
_CLOSE_SESSION = Method("Sessions/CloseSession", sessions.CloseSessionRequest, sessions.CloseSessionResponse)
_CREATE = Method(
    "Terminals/CreateTerminal", terminals.CreateTerminalRequest, terminals.CreateTerminalResponse
)
_GET = Method("Terminals/GetTerminal", terminals.GetTerminalRequest, terminals.GetTerminalResponse)
_LIST = Method("Terminals/ListTerminals", terminals.ListTerminalsRequest, terminals.ListTerminalsResponse)
_OUTPUT = Method("Terminals/GetOutput", terminals.GetOutputRequest, terminals.GetOutputResponse)
_STREAM = Method("Terminals/StreamOutput", terminals.StreamOutputRequest, terminals.StreamOutputResponse)
_WAIT = Method("Terminals/WaitForExit", terminals.WaitForExitRequest, terminals.WaitForExitResponse)
_SIGNAL = Method("Terminals/SignalTerminal", terminals.SignalTerminalRequest, terminals.SignalTerminalResponse)
_KILL = Method("Terminals/KillTerminal", terminals.KillTerminalRequest, terminals.KillTerminalResponse)
_RELEASE = Method(
    "Terminals/ReleaseTerminal", terminals.ReleaseTerminalRequest, terminals.ReleaseTerminalResponse
)
_WRITE = Method("Terminals/WriteInput", terminals.WriteInputRequest, terminals.WriteInputResponse)
_APPROVALS = Method("Approvals/ListApprovals", approvals.ListApprovalsRequest, approvals.ListApprovalsResponse)
_WATCH_APPROVALS = Method(
    "Approvals/WatchApprovals", approvals.WatchApprovalsRequest, approvals.WatchApprovalsResponse
)
_RESOLVE = Method(
    "Approvals/ResolveApproval", approvals.ResolveApprovalRequest, approvals.ResolveApprovalResponse
)

#: Of the output of ``run``, unless ``keep_bytes`` says otherwise.
KEEP_BYTES = 64 << 20
#: What the gateway keeps for ``run`` and ``stream``: more than can be on the way.
_RING_BYTES = 4 << 20
#: Pieces of output of two streams that wait for their reader.
_PIECES_MAX = 16
#: One write of ``write``: a request of the gateway has at most 3 MiB.
_WRITE_BYTES_MAX = 1 << 20


class AsyncGateway:
    """A gateway, at ``address`` (``unix:PATH``), or where ``$PROVOST_GATEWAY`` says, or where it listens by default.

    ``reconnect_for``: how many seconds a call waits for a gateway that has gone away.
    """

    def __init__(self, address: str | None = None, *, reconnect_for: float = 30.0) -> None:
        self._connection = Connection(address, reconnect_for)

    async def __aenter__(self) -> AsyncGateway:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Sessions and terminals live on."""
        await self._connection.close()

    async def open_session(
        self, roots: Sequence[str | os.PathLike[str]], **options: Unpack[SessionOptions]
    ) -> AsyncSession:
        """Opens a session whose commands may write to the directories ``roots``. The first is the workspace."""
        ends = options.get("ends_with_process", True)
        request = sessions.CreateSessionRequest(
            roots=[os.path.abspath(root) for root in roots],
            cwd=os.fspath(options.get("cwd", "")),
            env=_env(options.get("env")),
            labels=dict(options.get("labels") or {}),
            profile=options.get("profile", ""),
            lifetime=sessions.LIFETIME_OWNER_PROCESS if ends else sessions.LIFETIME_EXPLICIT,
            request_id=uuid.uuid4().hex,
        )
        answer = await self._connection.call(_CREATE_SESSION, request)
        return AsyncSession(self._connection, answer.session.id)

    def session(self, session_id: str) -> AsyncSession:
        """A session that exists."""
        return AsyncSession(self._connection, session_id)

    async def approvals(self, *, session_id: str = "", pending_only: bool = True) -> list[Approval]:
        """The approvals that this caller may see, oldest first."""
        found: list[Approval] = []
        page_token = ""
        while True:
            request = approvals.ListApprovalsRequest(
                session_id=session_id, pending_only=pending_only, page_token=page_token
            )
            answer = await self._connection.call(_APPROVALS, request)
            found.extend(Approval.of(message) for message in answer.approvals)
            page_token = answer.next_page_token
            if not page_token:
                return found

    async def watch_approvals(self, *, session_id: str = "") -> AsyncGenerator[Approval]:
        """The pending and approved approvals, and then every change, also those after a restart of the gateway."""
        outage = self._connection.outage()
        request = approvals.WatchApprovalsRequest(session_id=session_id)
        while True:
            try:
                async with aclosing(self._connection.stream(_WATCH_APPROVALS, request)) as answers:
                    async for answer in answers:
                        outage.over()
                        yield Approval.of(answer.approval)
                # The gateway ends; with a session, perhaps the session has.
                failure: ProvostError = GatewayUnavailable("the gateway has ended the stream")
                if session_id:
                    return
            except ProvostError as error:
                if not is_outage(error):
                    raise
                failure = error
            await outage.wait(failure)

    async def approve(self, approval_id: str, *, comment: str = "", on_behalf_of: str = "") -> Approval:
        """Lets the request run, once."""
        return await self._resolve(approval_id, approvals.APPROVAL_DECISION_APPROVE, comment, on_behalf_of)

    async def deny(self, approval_id: str, *, comment: str = "", on_behalf_of: str = "") -> Approval:
        """Refuses the request."""
        return await self._resolve(approval_id, approvals.APPROVAL_DECISION_DENY, comment, on_behalf_of)

    async def _resolve(
        self, approval_id: str, decision: int, comment: str, on_behalf_of: str
    ) -> Approval:
        request = approvals.ResolveApprovalRequest(
            approval_id=approval_id,
            decision=approvals.ApprovalDecision.Name(decision),
            comment=comment, on_behalf_of=on_behalf_of
        )
        answer = await self._connection.call(_RESOLVE, request, repeatable=False)
        return Approval.of(answer.approval)


class AsyncSession:
    """A session: its commands share a sandbox."""

    def __init__(self, connection: Connection, session_id: str) -> None:
        self._connection = connection
        #: Such as ``sess_01K...``.
        self.id = session_id

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops and releases all terminals. Returns when nothing is left."""
        try:
            await self._connection.call(_CLOSE_SESSION, sessions.CloseSessionRequest(session_id=self.id))
        except NotFound:
            pass  # It has been closed.

    async def create(
        self, program: str = "", *args: str, shell_line: str = "", **options: Unpack[CreateOptions]
    ) -> AsyncTerminal:
        """Starts a program, or a line for the shell."""
        split = options.get("split", False)
        stdin = options.get("stdin", False)
        wait_for_reader = options.get("wait_for_reader", False)
        request = terminals.CreateTerminalRequest(
            session_id=self.id,
            request_id=uuid.uuid4().hex,
            args=args,
            env=_env(options.get("env")),
            cwd=os.fspath(options.get("cwd", "")),
            profile=options.get("profile", ""),
            output_mode=terminals.OUTPUT_MODE_SPLIT if split else terminals.OUTPUT_MODE_MERGED,
            stdin_mode=terminals.STDIN_MODE_OPEN if stdin else terminals.STDIN_MODE_CLOSED,
            overflow=terminals.OVERFLOW_BLOCK if wait_for_reader else terminals.OVERFLOW_DROP_OLDEST,
            output_byte_limit=options.get("output_byte_limit"),
            time_limit=_duration(options.get("time_limit")),
            idle_limit=_duration(options.get("idle_limit")),
            kill_grace=_duration(options.get("kill_grace")),
            labels=dict(options.get("labels") or {}),
            on_ask=terminals.OnAsk.Name(options.get("on_ask", OnAsk.WAIT).value),
        )
        if shell_line:
            request.shell_line = shell_line
        else:
            request.program = program
        answer = await self._connection.call(_CREATE, request, timeout=options.get("timeout"))
        return AsyncTerminal(self._connection, self.id, answer.terminal.id)

    def terminal(self, terminal_id: str) -> AsyncTerminal:
        """A terminal that exists."""
        return AsyncTerminal(self._connection, self.id, terminal_id)

    async def terminals(self) -> list[TerminalInfo]:
        """The terminals of this session, oldest first."""
        found: list[TerminalInfo] = []
        page_token = ""
        while True:
            request = terminals.ListTerminalsRequest(session_id=self.id, page_token=page_token)
            answer = await self._connection.call(_LIST, request)
            found.extend(TerminalInfo.of(message) for message in answer.terminals)
            page_token = answer.next_page_token
            if not page_token:
                return found

    async def stream(
        self, program: str = "", *args: str, shell_line: str = "", **options: Unpack[CommandOptions]
    ) -> AsyncGenerator[Chunk | Exit]:
        """Runs a command: its output as it comes, all of it, and one ``Exit``. The terminal is then released.

        The command waits for a slow reader. When the generator is closed before its end, the command is stopped.
        """
        terminal = await self.create(
            program,
            *args,
            shell_line=shell_line,
            wait_for_reader=True,
            output_byte_limit=_RING_BYTES,
            **options,
        )
        split = options.get("split", False)
        try:
            streams = (Stream.STDOUT, Stream.STDERR) if split else (Stream.STDOUT,)
            async with aclosing(_merged([terminal.attach(stream=stream) for stream in streams])) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Gap):
                        raise OutputLost(f"{piece.end - piece.start} bytes were dropped at {piece.start}")
                    yield piece
            outcome = await terminal.wait()
        finally:
            await asyncio.shield(terminal.release())
        yield Exit(outcome)

    async def run(
        self,
        program: str = "",
        *args: str,
        shell_line: str = "",
        on_output: Callable[[Chunk], None] | None = None,
        keep_bytes: int = KEEP_BYTES,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """Runs a command to its end. ``on_output`` gets each piece of output as it comes.

        ``keep_bytes``: how much of each stream the result has; of longer output it has the tail.
        """
        tails = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
        truncated = False
        events = self.stream(program, *args, shell_line=shell_line, **options)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Exit):
                    stdout, stderr = (bytes(tails[stream]) for stream in (Stream.STDOUT, Stream.STDERR))
                    return Result(event.outcome, stdout, stderr, truncated)
                if on_output:
                    on_output(event)
                tail = tails[event.stream]
                tail += event.data
                if len(tail) > keep_bytes:
                    del tail[: len(tail) - keep_bytes]
                    truncated = True
        raise AssertionError("a stream ends with Exit or with an error")


class AsyncTerminal:
    """A command, from its start until its release."""

    def __init__(self, connection: Connection, session_id: str, terminal_id: str) -> None:
        self._connection = connection
        self._session_id = session_id
        #: Such as ``term_01K...``.
        self.id = terminal_id

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
                            return
            except ProvostError as error:
                if not is_outage(error):
                    raise
                failure = error
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
        """Sends a signal, such as ``"SIGINT"``, to the process group of the main process."""
        request = terminals.SignalTerminalRequest(
            terminal_id=self.id, session_id=self._session_id, signal=name
        )
        await self._connection.call(_SIGNAL, request, repeatable=False)

    async def kill(self, *, grace: float | None = None) -> None:
        """Starts to stop all processes: TERM, and KILL after ``grace`` seconds. ``wait`` returns at their end."""
        request = terminals.KillTerminalRequest(
            terminal_id=self.id, session_id=self._session_id, grace=_duration(grace)
        )
        await self._connection.call(_KILL, request)

    async def release(self, *, grace: float | None = None) -> None:
        """Stops the command if it runs, and frees the terminal. Returns when nothing is left."""
        request = terminals.ReleaseTerminalRequest(
            terminal_id=self.id, session_id=self._session_id, grace=_duration(grace)
        )
        try:
            await self._connection.call(_RELEASE, request)
        except NotFound:
            pass  # It has been released.


async def _merged(sources: Sequence[AsyncGenerator[Chunk | Gap]]) -> AsyncGenerator[Chunk | Gap]:
    """What all of them give, as it comes."""
    if len(sources) == 1:
        async with aclosing(sources[0]):
            async for piece in sources[0]:
                yield piece
        return
    pieces: asyncio.Queue[Chunk | Gap | None] = asyncio.Queue(_PIECES_MAX)

    async def read(source: AsyncGenerator[Chunk | Gap]) -> None:
        try:
            async with aclosing(source):
                async for piece in source:
                    await pieces.put(piece)
        finally:
            await pieces.put(None)

    readers = [asyncio.create_task(read(source)) for source in sources]
    try:
        running = len(readers)
        while running:
            arrived = await pieces.get()
            if arrived is None:
                running -= 1
            else:
                yield arrived
        for reader in readers:
            await reader
    finally:
        for reader in readers:
            reader.cancel()
        while not pieces.empty():
            pieces.get_nowait()
        await asyncio.gather(*readers, return_exceptions=True)


def _env(env: Mapping[str, str] | None) -> list[sessions.EnvVar]:
    return [sessions.EnvVar(name=name, value=value) for name, value in (env or {}).items()]


def _duration(seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
