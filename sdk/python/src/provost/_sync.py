"""The client for ordinary code: the one for asyncio, on an event loop in a thread of its own.

A generator that is not read to its end is closed with ``close()``, or when nothing refers to it any more. Gateways do not
survive ``os.fork()``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from ._aio import KEEP_BYTES, AsyncGateway, AsyncSession
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

T = TypeVar("T")


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="provost", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Does the work in the loop. Interrupted by Ctrl-C it cancels the work, and waits until that has cleaned up."""
        cleaned_up = threading.Event()

        async def watched() -> T:
            try:
                return await work
            finally:
                cleaned_up.set()

        future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                cleaned_up.wait()
            raise

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        try:
            while True:
                try:
                    yield self.run(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            self.run(items.aclose())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Gateway:
    """A gateway, at ``address`` (``unix:PATH``), or where ``$PROVOST_GATEWAY`` says, or where it listens by default.

    ``reconnect_for``: how many seconds a call waits for a gateway that has gone away.
    """

    def __init__(self, address: str | None = None, *, reconnect_for: float = 30.0) -> None:
        self._loop = _Loop()

        async def connect() -> AsyncGateway:
            return AsyncGateway(address, reconnect_for=reconnect_for)

        self._inner = self._loop.run(connect())

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
        self._loop.run(self._inner.close())
        self._loop.close()

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

    def __init__(self, loop: _Loop, inner: AsyncSession) -> None:
        self._loop = loop
        self._inner = inner

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    def __init__(self, loop: _Loop, inner: AsyncTerminal) -> None:
        self._loop = loop
        self._inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    def __init__(self, loop: _Loop, inner: AsyncShell) -> None:
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
