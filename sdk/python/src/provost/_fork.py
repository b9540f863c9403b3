"""What becomes of connections when the process is forked.

gRPC goes on in a forked child only if no thread of its client for asyncio was at work when the process was forked: else a call in the
child hangs, and a new channel ends the child by SIGSEGV. So channels on which nothing is under way are given up before a fork, and
made again on both sides when they are needed. Where a call was under way, the parent does not notice, and the child is told by
``Forked`` instead of what would happen to it.

gRPC's own support of forks, which it has for its other client, starts threads in such a child that end it by SIGSEGV, also one that makes
no call. Its documentation has it off until it is asked for, and so has this module, unless the process asks for it. gRPC reads that once,
when it is imported: programs that this process starts find the variable as it was.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Protocol

_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

_is_unasked = _SUPPORT not in os.environ
if _is_unasked:
    os.environ[_SUPPORT] = "0"
try:
    import grpc.aio as _grpc_aio  # noqa: F401
finally:
    if _is_unasked:
        del os.environ[_SUPPORT]

from .errors import Forked  # noqa: E402


class Forkable(Protocol):
    """What is told of forks."""

    def before_fork(self) -> bool:
        """Gives up what nothing is under way on. Whether something is."""

    def after_fork_in_child(self) -> None:
        """Forgets what is the parent's, and touches none of it."""


#: The thread in which gRPC waits for what comes. Python names a thread by the function that it runs.
_POLLER = "_poll_wrapper"
#: How the names of its other threads begin, which go a little later.
_OTHERS = ("grpc", "event_engine", "lifeguard", "timer_manager", "default-exec", "resolver-exec")
#: How long a fork may wait until what has ended is given up, and between looks.
_QUIET_TIMEOUT_S = 1.0
_QUIET_PAUSE_S = 0.002

#: What is a parent process's. To end it in a child would reach into the parent by what the two share, or wait for threads that are not
#: there.
of_parents: list[object] = []
_known: weakref.WeakSet[Forkable] = weakref.WeakSet()
#: Held while a channel is made, and over a fork.
making = threading.Lock()
#: How many forks have led to this process.
generation = 0
_worked_at_fork = False
_is_spoilt = False


def register(forkable: Forkable) -> None:
    """Tells it of every fork from now on."""
    _known.add(forkable)


def check() -> None:
    """Raises ``Forked`` in a process in which gRPC cannot be used."""
    if _is_spoilt:
        raise Forked(
            "this process was forked while calls of gRPC were under way, and cannot make any: fork when none are, or use "
            "multiprocessing's start method 'spawn' or 'forkserver'"
        )


def _works() -> bool:
    """Whether gRPC has threads, which a child would not have."""
    return any(_POLLER in thread.name for thread in threading.enumerate()) or any(
        name.startswith(_OTHERS) for name in _names_of_threads()
    )


def _names_of_threads() -> Iterator[str]:
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as comm:
                yield comm.read()
        except OSError:
            pass  # It has ended.


def _before() -> None:
    global _worked_at_fork
    deadline = time.monotonic() + _QUIET_TIMEOUT_S
    if not list(_known):
        # Nothing of ours: what others do with gRPC is theirs.
        making.acquire()
        return
    while True:
        is_busy = any([forkable.before_fork() for forkable in list(_known)])
        making.acquire()
        _worked_at_fork = _works()
        if not _worked_at_fork or is_busy or time.monotonic() > deadline:
            return
        # What was cancelled a moment ago holds its channel, something that nobody uses does, or another thread has just made one.
        making.release()
        gc.collect()
        time.sleep(_QUIET_PAUSE_S)


def _after_in_parent() -> None:
    making.release()


def _after_in_child() -> None:
    global generation, making, _is_spoilt
    generation += 1
    making = threading.Lock()
    _is_spoilt = _is_spoilt or _worked_at_fork
    for forkable in list(_known):
        forkable.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
