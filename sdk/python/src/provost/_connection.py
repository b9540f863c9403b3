"""A connection to a gateway: its calls, and what happens while no gateway answers.

A call that can be repeated is repeated until a gateway answers or the time is over. A call that cannot is not.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
import grpc.aio

from . import _fork
from ._runtime import Caller, now, refuse_patched_threads, sleep
from .errors import GatewayUnavailable, ProvostError, from_rpc, is_outage

#: The variable that names a gateway, as for ``provost run``.
VARIABLE = "PROVOST_GATEWAY"
_MESSAGE_BYTES_MAX = 64 << 20
_WAIT_MIN_S = 0.02
_WAIT_MAX_S = 0.5
#: How long a loop of another thread may take to give its channel up before a fork.
_GIVE_UP_TIMEOUT_S = 1.0

Request = TypeVar("Request", bound="Message")
Response = TypeVar("Response", bound="Message")


class Message(Protocol):
    """What the generated messages have."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802


class Method(Generic[Request, Response]):
    """A method of a service, and the type of its responses."""

    def __init__(self, path: str, request: type[Request], response: type[Response]) -> None:
        self.path = f"/provost.v1.{path}"
        self.parse = cast(Any, response).FromString


def default_address() -> str:
    """Where ``provost serve`` listens if it is not told otherwise."""
    if named := os.environ.get(VARIABLE):
        return named
    if os.geteuid() == 0:
        return "unix:/run/provost/provost.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    directory = f"{runtime}/provost" if runtime.startswith("/") else f"/tmp/provost-{os.geteuid()}"
    return f"unix:{directory}/provost.sock"


class Connection:
    """Channels to a gateway and to those that come after it at the same address: one for each event loop that calls."""

    def __init__(self, address: str | None, reconnect_for: float) -> None:
        refuse_patched_threads()
        self.address = address or default_address()
        self.caller = Caller()
        self._reconnect_for = reconnect_for
        self._channels: dict[asyncio.AbstractEventLoop, grpc.aio.Channel] = {}
        #: Calls that are under way.
        self._calls: set[object] = set()
        self._closed = False
        _fork.register(self)

    @contextmanager
    def _call(self) -> Iterator[Any]:
        """The channel of the loop that runs, for one call."""
        if self._closed:
            raise RuntimeError("the gateway is closed")
        call = object()
        self._calls.add(call)
        try:
            yield self._channel()
        finally:
            self._calls.discard(call)

    def _channel(self) -> grpc.aio.Channel:
        loop = asyncio.get_running_loop()
        if channel := self._channels.get(loop):
            return channel
        with _fork.making:
            _fork.check()
            for ended in [other for other in self._channels if other.is_closed()]:
                del self._channels[ended]
            self._channels[loop] = channel = grpc.aio.insecure_channel(
                self.address,
                options=[
                    ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
                    ("grpc.initial_reconnect_backoff_ms", 20),
                    ("grpc.min_reconnect_backoff_ms", 1_000),
                    ("grpc.max_reconnect_backoff_ms", 500),
                    # Little is on the way: a gateway that dies still has it (docs/internals/decisions/0194).
                    ("grpc.http2.lookahead_bytes", 64 << 10),
                    ("grpc.http2.bdp_probe", 0),
                    # Repeating is decided here.
                    ("grpc.enable_retries", 0),
                ],
            )
        return channel

    async def close(self) -> None:
        await self.caller.run(self._close())
        self.caller.close()

    async def _close(self) -> None:
        self._closed = True
        if channel := self._channels.pop(asyncio.get_running_loop(), None):
            await channel.close()
        self._channels.clear()

    def before_fork(self) -> bool:
        """Gives the channels up, if nothing is under way on them: each in its loop, where that runs."""
        for loop in list(self._channels):
            if self._calls:
                return True
            if not loop.is_running() or _is_running_here(loop):
                self._channels.pop(loop, None)
                continue
            given_up = threading.Event()
            loop.call_soon_threadsafe(self._give_up, loop, given_up)
            given_up.wait(_GIVE_UP_TIMEOUT_S)
        return bool(self._channels)

    def _give_up(self, loop: asyncio.AbstractEventLoop, given_up: threading.Event) -> None:
        if not self._calls:
            self._channels.pop(loop, None)
        given_up.set()

    def after_fork_in_child(self) -> None:
        """What was under way is the parent's."""
        _fork.of_parents.append((self._channels, self._calls))
        self._channels, self._calls = {}, set()

    def outage(self) -> Outage:
        return Outage(self._reconnect_for)

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None = None,
        repeatable: bool = True,
    ) -> Response:
        """Calls a method with one response. ``repeatable``: whether doing it twice is as good as once."""
        return await self.caller.run(self._repeated(method, request, timeout, repeatable))

    async def _repeated(
        self, method: Method[Request, Response], request: Request, timeout: float | None, repeatable: bool
    ) -> Response:
        outage = self.outage()
        while True:
            try:
                return await self._unary(method, request, timeout)
            except grpc.aio.AioRpcError as error:
                failure = from_rpc(error)
                if not is_outage(failure):
                    raise failure from None
                if not repeatable:
                    raise _unavailable(failure) from None
                await outage.wait(failure)

    async def _unary(
        self, method: Method[Request, Response], request: Request, timeout: float | None
    ) -> Response:
        with self._call() as channel:
            send = channel.unary_unary(
                method.path,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=method.parse,
            )
            return cast(Response, await send(request, timeout=timeout))

    def stream(self, method: Method[Request, Response], request: Request) -> AsyncGenerator[Response]:
        """Calls a method with many responses, once. Raises ``ProvostError``."""
        return self.caller.iterate(self._streamed(method, request))

    async def _streamed(
        self, method: Method[Request, Response], request: Request
    ) -> AsyncGenerator[Response]:
        with self._call() as channel:
            send = channel.unary_stream(
                method.path,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=method.parse,
            )
            call = send(request)
            try:
                async for response in call:
                    yield cast(Response, response)
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error) from None
            finally:
                call.cancel()


class Outage:
    """The time in which no gateway answers, from the first failure on."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since: float | None = None
        self._wait = _WAIT_MIN_S

    def over(self) -> None:
        """A gateway has answered."""
        self._since = None
        self._wait = _WAIT_MIN_S

    async def wait(self, failure: ProvostError) -> None:
        """Waits before the next attempt. Raises ``GatewayUnavailable`` when the time is over."""
        time = now()
        if self._since is None:
            self._since = time
        if time - self._since >= self._limit:
            raise _unavailable(failure)
        await sleep(self._wait)
        self._wait = min(self._wait * 2, _WAIT_MAX_S)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _unavailable(failure: ProvostError) -> GatewayUnavailable:
    return GatewayUnavailable(
        failure.message, code=failure.code, reason=failure.reason, metadata=failure.metadata
    )
