"""Where the client's work is done: in the caller's event loop, or in one of its own in another thread.

gRPC works with asyncio alone. Callers without asyncio (ordinary code, and trio by way of anyio or not) have it done by a thread.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, nullcontext
from typing import Any, Generic, TypeVar

from . import _fork
from .errors import UnsupportedRuntime

T = TypeVar("T")


#: What gRPC's threads and their event loop need as Python has it.
_NEEDED = ("threading", "_thread", "select", "selectors", "socket")


def refuse_patched_threads() -> None:
    """Raises ``UnsupportedRuntime`` where gRPC's threads would stop everything else, and wait for it."""
    gevent: Any = sys.modules.get("gevent.monkey")
    eventlet: Any = sys.modules.get("eventlet.patcher")
    for name, patched in (
        ("gevent", gevent and any(map(gevent.is_module_patched, _NEEDED))),
        ("eventlet", eventlet and any(map(eventlet.is_monkey_patched, ("thread", "select", "socket")))),
    ):
        if patched:
            raise UnsupportedRuntime(
                f"{name} has patched threads or sockets in this process, and gRPC's client for asyncio cannot work there: use this "
                "client in a process without it, or run the command `provost run`"
            )


def _in_trio() -> bool:
    trio: Any = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    try:
        # A task of asyncio within trio, as trio-asyncio has them.
        return asyncio.current_task() is None
    except RuntimeError:
        return True


class _Work(Generic[T]):
    """Something that is done in a loop of another thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], ended: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        loop.call_soon_threadsafe(self._begin, work, ended)

    def _begin(self, work: Coroutine[Any, Any, T], ended: Callable[[], object]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(lambda _: ended())

    def cancel(self) -> None:
        """It is over when it has cleaned up."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())

    def result(self) -> T:
        """What came of it, when it is over."""
        assert self._task
        return self._task.result()


class LoopThread:
    """An event loop in a thread, from the first work on; in a forked process, from the first work there on."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        _fork.register(self)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._closed:
                raise RuntimeError("the gateway is closed")
            if self._loop is None:
                refuse_patched_threads()
                _fork.check()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="provost", daemon=True)
                self._thread.start()
            return self._loop

    def _submit(self, work: Coroutine[Any, Any, T], ended: Callable[[], object]) -> _Work[T]:
        try:
            return _Work(self._running(), work, ended)
        except BaseException:
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Does the work in the loop. Interrupted by Ctrl-C it cancels the work, and waits until that has cleaned up."""
        ended = threading.Event()
        submitted = self._submit(work, ended.set)
        try:
            ended.wait()
        except BaseException:
            submitted.cancel()
            ended.wait()
            raise
        return submitted.result()

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """What a generator gives in the loop."""
        generation = _fork.generation
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            if generation != _fork.generation:
                # It goes on in the parent.
                _fork.of_parents.append(items)
            elif not self._closed:
                self.run(items.aclose())

    async def run_from_trio(self, work: Coroutine[Any, Any, T]) -> T:
        """As ``run``, for a task of trio."""
        import trio

        ended, token = trio.Event(), trio.lowlevel.current_trio_token()
        submitted = self._submit(work, lambda: token.run_sync_soon(ended.set))
        try:
            await ended.wait()
        except BaseException:
            submitted.cancel()
            with trio.CancelScope(shield=True):
                await ended.wait()
            raise
        return submitted.result()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Ends the thread, if there is one, after the last work."""
        if last and self._loop:
            self.run(last())
        with self._starting:
            loop, thread, self._loop, self._thread, self._closed = self._loop, self._thread, None, None, True
        if loop and thread:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def before_fork(self) -> bool:
        """The thread stays in the parent."""
        return False

    def after_fork_in_child(self) -> None:
        """There is no thread here, and the loop's descriptors are the parent's."""
        _fork.of_parents.append(self._loop)
        self._starting = threading.Lock()
        self._loop = self._thread = None


async def _next(items: AsyncGenerator[T]) -> T:
    return await anext(items)


class Caller:
    """Does work for whoever calls: in the loop that runs, or for trio in one of its own."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None

    def _of_trio(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread()
        return self._thread

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits the work."""
        return await (self._of_trio().run_from_trio(work) if _in_trio() else work)

    async def iterate(self, items: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """What the generator gives."""
        if not _in_trio():
            async with aclosing(items):
                async for item in items:
                    yield item
            return
        thread = self._of_trio()
        try:
            while True:
                try:
                    item = await thread.run_from_trio(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            await shielded(thread.run_from_trio(items.aclose()))

    def close(self) -> None:
        """Ends what was started for it."""
        if self._thread:
            self._thread.close()


async def sleep(seconds: float) -> None:
    """Waits, whoever calls."""
    if _in_trio():
        import trio

        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Does the work to its end, also when whoever calls is cancelled."""
    if _in_trio():
        import trio

        with trio.CancelScope(shield=True):
            return await work
    # A scope of anyio cancels again and again what is in it.
    anyio: Any = sys.modules.get("anyio")
    with anyio.CancelScope(shield=True) if anyio else nullcontext():
        return await asyncio.shield(work)


now = time.monotonic
