"""The client for ordinary code: the one for asyncio, on an event loop in a thread of its own.

A generator that is not read to its end is closed with ``close()``, or when nothing refers to it any more. A gateway and its
sessions can be used in a forked process if no call was under way when it was forked; else calls there raise ``Forked``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Self, Unpack

from . import _fork
from ._aio import KEEP_BYTES, AsyncGateway, AsyncSession
from ._runtime import LoopThread
from ._shell import KEEP_LINE_BYTES, AsyncShell, LineEvent
from ._terminal import AsyncTerminal
from ._text import Text
from .types import (
    Approval,
    Chunk,
    CommandOptions,
    CreateOptions,
    Exit,
    Gap,
    LineOptions,
    LineResult,
    Outcome,
    Result,
    SessionOptions,
    ShellOptions,
    ShellStatus,
    Stream,
    TerminalInfo,
)


class Gateway:
    """A gateway, at ``address`` (``unix:PATH``), or where ``$PROVOST_GATEWAY`` says, or where it listens by default.

    ``reconnect_for``: how many seconds a call waits for a gateway that has gone away.
    """

    def __init__(self, address: str | None = None, *, reconnect_for: float = 30.0) -> None:
        self._inner = AsyncGateway(address, reconnect_for=reconnect_for)
        self._loop = LoopThread()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Sessions and terminals live on."""
        self._loop.close(self._inner.close)

    def open_session(
        self, roots: Sequence[str | os.PathLike[str]], **options: Unpack[SessionOptions]
    ) -> Session:
        """As ``AsyncGateway.open_session``."""
        return Session(self._loop, self._loop.run(self._inner.open_session(roots, **options)))

    def session(self, session_id: str) -> Session:
        """A session that exists."""
        return Session(self._loop, self._inner.session(session_id))

    def approvals(self, *, session_id: str = "", pending_only: bool = True) -> list[Approval]:
        """As ``AsyncGateway.approvals``."""
        return self._loop.run(self._inner.approvals(session_id=session_id, pending_only=pending_only))

    def watch_approvals(self, *, session_id: str = "") -> Generator[Approval]:
        """As ``AsyncGateway.watch_approvals``."""
        return self._loop.iterate(self._inner.watch_approvals(session_id=session_id))

    def approve(self, approval_id: str, *, comment: str = "", on_behalf_of: str = "") -> Approval:
        """Lets the request run, once."""
        return self._loop.run(
            self._inner.approve(approval_id, comment=comment, on_behalf_of=on_behalf_of)
        )

    def deny(self, approval_id: str, *, comment: str = "", on_behalf_of: str = "") -> Approval:
        """Refuses the request."""
        return self._loop.run(self._inner.deny(approval_id, comment=comment, on_behalf_of=on_behalf_of))


class Session:
    """A session: its commands share a sandbox."""

    def __init__(self, loop: LoopThread, inner: AsyncSession) -> None:
        self._loop = loop
        self._inner = inner
        self._generation = _fork.generation

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A forked process that leaves the block leaves the session to its parent.
        if self._generation == _fork.generation:
            self.close()

    @property
    def id(self) -> str:
        """Such as ``sess_01K...``."""
        return self._inner.id

    def close(self) -> None:
        """Stops and releases all terminals. Returns when nothing is left."""
        self._loop.run(self._inner.close())

    def create(
        self, program: Text = "", *args: Text, shell_line: Text = "", **options: Unpack[CreateOptions]
    ) -> Terminal:
        """Starts a program, or a line for the shell."""
        created = self._inner.create(program, *args, shell_line=shell_line, **options)
        return Terminal(self._loop, self._loop.run(created))

    def open_shell(self, program: str = "", **options: Unpack[ShellOptions]) -> Shell:
        """As ``AsyncSession.open_shell``."""
        return Shell(self._loop, self._loop.run(self._inner.open_shell(program, **options)))

    def shell(self, terminal_id: str) -> Shell:
        """A kept shell that exists."""
        return Shell(self._loop, self._inner.shell(terminal_id))

    def terminal(self, terminal_id: str) -> Terminal:
        """A terminal that exists."""
        return Terminal(self._loop, self._inner.terminal(terminal_id))

    def terminals(self) -> list[TerminalInfo]:
        """The terminals of this session, oldest first."""
        return self._loop.run(self._inner.terminals())

    def stream(
        self, program: Text = "", *args: Text, shell_line: Text = "", **options: Unpack[CommandOptions]
    ) -> Generator[Chunk | Exit]:
        """As ``AsyncSession.stream``."""
        return self._loop.iterate(self._inner.stream(program, *args, shell_line=shell_line, **options))

    def run(
        self,
        program: Text = "",
        *args: Text,
        shell_line: Text = "",
        on_output: Callable[[Chunk], None] | None = None,
        keep_bytes: int = KEEP_BYTES,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """As ``AsyncSession.run``. ``on_output`` is called in another thread, and must not call this client."""
        return self._loop.run(
            self._inner.run(
                program,
                *args,
                shell_line=shell_line,
                on_output=on_output,
                keep_bytes=keep_bytes,
                **options,
            )
        )


class Terminal:
    """A command, from its start until its release."""

    def __init__(self, loop: LoopThread, inner: AsyncTerminal) -> None:
        self._loop = loop
        self._inner = inner
        self._generation = _fork.generation

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._generation == _fork.generation:
            self.release()

    @property
    def id(self) -> str:
        """Such as ``term_01K...``."""
        return self._inner.id

    def info(self) -> TerminalInfo:
        """Its present state."""
        return self._loop.run(self._inner.info())

    def attach(
        self, offset: int = 0, *, stream: Stream = Stream.STDOUT, follow: bool = True
    ) -> Generator[Chunk | Gap]:
        """As ``AsyncTerminal.attach``."""
        return self._loop.iterate(self._inner.attach(offset, stream=stream, follow=follow))

    def output(self, *, stream: Stream = Stream.STDOUT) -> tuple[bytes, bool]:
        """The output that the gateway keeps, and whether any was dropped before it."""
        return self._loop.run(self._inner.output(stream=stream))

    def wait(self, timeout: float | None = None) -> Outcome:
        """Waits for the end of the command. ``DeadlineExceeded``: it still runs after ``timeout`` seconds."""
        return self._loop.run(self._inner.wait(timeout))

    def write(self, data: bytes, *, eof: bool = False) -> int:
        """As ``AsyncTerminal.write``."""
        return self._loop.run(self._inner.write(data, eof=eof))

    def signal(self, name: str) -> None:
        """Sends a signal, such as ``"SIGINT"`` or ``"2"``, to the process group of the main process."""
        self._loop.run(self._inner.signal(name))

    def kill(self, *, grace: float | None = None) -> None:
        """Starts to stop all processes: TERM, and KILL after ``grace`` seconds. ``wait`` returns at their end."""
        self._loop.run(self._inner.kill(grace=grace))

    def release(self, *, grace: float | None = None) -> None:
        """Stops the command if it runs, and frees the terminal. Returns when nothing is left."""
        self._loop.run(self._inner.release(grace=grace))


class Shell(Terminal):
    """A kept shell: a terminal in which lines run, one after the other. Directory, variables and functions stay."""

    def __init__(self, loop: LoopThread, inner: AsyncShell) -> None:
        super().__init__(loop, inner)
        self._shell = inner

    def stream_line(self, line: str, **options: Unpack[LineOptions]) -> Generator[LineEvent]:
        """As ``AsyncShell.stream_line``."""
        return self._loop.iterate(self._shell.stream_line(line, **options))

    def run_line(
        self,
        line: str,
        *,
        on_output: Callable[[Chunk], None] | None = None,
        keep_bytes: int = KEEP_LINE_BYTES,
        **options: Unpack[LineOptions],
    ) -> LineResult:
        """As ``AsyncShell.run_line``. ``on_output`` is called in another thread, and must not call this client."""
        return self._loop.run(
            self._shell.run_line(line, on_output=on_output, keep_bytes=keep_bytes, **options)
        )

    def write_line(self, line_id: str, data: bytes, *, eof: bool = False) -> None:
        """As ``AsyncShell.write_line``."""
        self._loop.run(self._shell.write_line(line_id, data, eof=eof))

    def interrupt(self) -> None:
        """Does what Ctrl-C does: sends SIGINT to what runs in the foreground of the shell."""
        self._loop.run(self._shell.interrupt())

    def status(self) -> ShellStatus:
        """What the shell does now."""
        return self._loop.run(self._shell.status())
