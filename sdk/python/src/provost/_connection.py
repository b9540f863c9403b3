"""A connection to a gateway: its calls, and what happens while no gateway answers.

A call that can be repeated is repeated until a gateway answers or the time is over. A call that cannot is not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
import grpc.aio

from .errors import GatewayUnavailable, ProvostError, from_rpc, is_outage

#: The variable that names a gateway, as for ``provost run``.
VARIABLE = "PROVOST_GATEWAY"
_MESSAGE_BYTES_MAX = 64 << 20
_WAIT_MIN_S = 0.02
_WAIT_MAX_S = 0.5

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
    """A channel to a gateway and to those that come after it at the same address."""

    def __init__(self, address: str | None, reconnect_for: float) -> None:
        self.address = address or default_address()
        self._reconnect_for = reconnect_for
        self._channel = grpc.aio.insecure_channel(
            self.address,
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
                ("grpc.initial_reconnect_backoff_ms", 20),
                ("grpc.min_reconnect_backoff_ms", 1_000),
                ("grpc.max_reconnect_backoff_ms", 500),
                # Little is on the way: a gateway that dies still has it (docs/decisions/0194).
                ("grpc.http2.lookahead_bytes", 64 << 10),
                ("grpc.http2.bdp_probe", 0),
                # Repeating is decided here.
                ("grpc.enable_retries", 0),
            ],
        )

    async def close(self) -> None:
        await self._channel.close()

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
        send: Any = self._channel.unary_unary(
            method.path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=method.parse,
        )
        return cast(Response, await send(request, timeout=timeout))

    async def stream(
        self, method: Method[Request, Response], request: Request
    ) -> AsyncGenerator[Response]:
        """Calls a method with many responses, once. Raises ``ProvostError``."""
        send: Any = self._channel.unary_stream(
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
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        if now - self._since >= self._limit:
            raise _unavailable(failure)
        await asyncio.sleep(self._wait)
        self._wait = min(self._wait * 2, _WAIT_MAX_S)


def _unavailable(failure: ProvostError) -> GatewayUnavailable:
    return GatewayUnavailable(
        failure.message, code=failure.code, reason=failure.reason, metadata=failure.metadata
    )
