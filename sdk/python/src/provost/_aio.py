"""The client for asyncio: gateway and session."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Unpack

from . import _text
from ._connection import Connection, Method
from ._opening import Closing, opening
from ._runtime import shielded
from ._shell import AsyncShell
from ._terminal import AsyncTerminal, duration
from ._text import Text
from .errors import GatewayUnavailable, NotFound, OutputLost, ProvostError, is_outage
from .types import (
    Approval,
    Chunk,
    CommandOptions,
    CreateOptions,
    Exit,
    Gap,
    OnAsk,
    Result,
    SessionOptions,
    ShellOptions,
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
_LIST = Method("Terminals/ListTerminals", terminals.ListTerminalsRequest, terminals.ListTerminalsResponse)
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


class AsyncGateway(Closing):
    """A gateway, at ``address`` (``unix:PATH``), or where ``$PROVOST_GATEWAY`` says, or where it listens by default.

    ``reconnect_for``: how many seconds a call waits for a gateway that has gone away.
    """

    def __init__(self, address: str | None = None, *, reconnect_for: float = 30.0) -> None:
        self._connection = Connection(address, reconnect_for)

    async def _leave(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Sessions and terminals live on."""
        await self._connection.close()

    @opening
    async def open_session(
        self, roots: Sequence[str | os.PathLike[str]], **options: Unpack[SessionOptions]
    ) -> AsyncSession:
        """Opens a session whose commands may write to the directories ``roots``. The first is the workspace.

        ``async with gateway.open_session(roots) as session`` closes it at the end; awaited it stays open.
        """
        ends = options.get("ends_with_process", True)
        request = sessions.CreateSessionRequest(
            env=_text.env(options.get("env")),
            labels=dict(options.get("labels") or {}),
            profile=options.get("profile", ""),
            lifetime=sessions.LIFETIME_OWNER_PROCESS if ends else sessions.LIFETIME_EXPLICIT,
            request_id=uuid.uuid4().hex,
        )
        _text.put_all(request, "roots", [os.path.abspath(root) for root in roots])
        _text.put(request, "cwd", options.get("cwd", ""))
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


class AsyncSession(Closing):
    """A session: its commands share a sandbox."""

    def __init__(self, connection: Connection, session_id: str) -> None:
        self._connection = connection
        #: Such as ``sess_01K...``.
        self.id = session_id

    async def _leave(self) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops and releases all terminals. Returns when nothing is left."""
        try:
            await self._connection.call(_CLOSE_SESSION, sessions.CloseSessionRequest(session_id=self.id))
        except NotFound:
            pass  # It has been closed.

    @opening
    async def create(
        self, program: Text = "", *args: Text, shell_line: Text = "", **options: Unpack[CreateOptions]
    ) -> AsyncTerminal:
        """Starts a program, or a line for the shell."""
        split = options.get("split", False)
        stdin = options.get("stdin", False)
        wait_for_reader = options.get("wait_for_reader", False)
        request = terminals.CreateTerminalRequest(
            session_id=self.id,
            request_id=uuid.uuid4().hex,
            env=_text.env(options.get("env")),
            profile=options.get("profile", ""),
            output_mode=terminals.OUTPUT_MODE_SPLIT if split else terminals.OUTPUT_MODE_MERGED,
            stdin_mode=terminals.STDIN_MODE_OPEN if stdin else terminals.STDIN_MODE_CLOSED,
            overflow=terminals.OVERFLOW_BLOCK if wait_for_reader else terminals.OVERFLOW_DROP_OLDEST,
            output_byte_limit=options.get("output_byte_limit"),
            time_limit=duration(options.get("time_limit")),
            idle_limit=duration(options.get("idle_limit")),
            kill_grace=duration(options.get("kill_grace")),
            labels=dict(options.get("labels") or {}),
            on_ask=terminals.OnAsk.Name(options.get("on_ask", OnAsk.WAIT).value),
            umask=options.get("umask", _text.own_umask()),
        )
        _text.put_all(request, "args", args)
        _text.put(request, "cwd", options.get("cwd", ""))
        if shell_line:
            _text.put(request, "shell_line", shell_line)
        else:
            _text.put(request, "program", program)
        answer = await self._connection.call(_CREATE, request, timeout=options.get("timeout"))
        return AsyncTerminal(self._connection, self.id, answer.terminal.id)

    @opening
    async def open_shell(self, program: str = "", **options: Unpack[ShellOptions]) -> AsyncShell:
        """Keeps a shell that runs line after line: bash, zsh, fish, dash or another; by default the profile's."""
        columns, rows = options.get("size", (80, 24))
        request = terminals.CreateTerminalRequest(
            session_id=self.id,
            request_id=uuid.uuid4().hex,
            env=_text.env(options.get("env")),
            profile=options.get("profile", ""),
            output_byte_limit=options.get("output_byte_limit"),
            time_limit=duration(options.get("time_limit")),
            idle_limit=duration(options.get("idle_limit")),
            kill_grace=duration(options.get("kill_grace")),
            labels=dict(options.get("labels") or {}),
            on_ask=terminals.OnAsk.Name(options.get("on_ask", OnAsk.WAIT).value),
            umask=options.get("umask", _text.own_umask()),
            pty=terminals.Pty(columns=columns, rows=rows),
            kept_shell=terminals.KeptShell(),
        )
        _text.put(request, "cwd", options.get("cwd", ""))
        if program:
            request.program = program
        answer = await self._connection.call(_CREATE, request, timeout=options.get("timeout"))
        return self.shell(answer.terminal.id)

    def shell(self, terminal_id: str) -> AsyncShell:
        """A kept shell that exists."""
        return AsyncShell(self._connection, self.id, terminal_id)

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
        self, program: Text = "", *args: Text, shell_line: Text = "", **options: Unpack[CommandOptions]
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
            outputs = _merged([terminal.attach(stream=stream) for stream in streams])
            async with aclosing(self._connection.caller.iterate(outputs)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Gap):
                        raise OutputLost(f"{piece.end - piece.start} bytes were dropped at {piece.start}")
                    yield piece
            outcome = await terminal.wait()
        finally:
            await shielded(terminal.release())
        yield Exit(outcome)

    async def run(
        self,
        program: Text = "",
        *args: Text,
        shell_line: Text = "",
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
