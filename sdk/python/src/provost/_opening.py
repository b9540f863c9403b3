"""What is opened by a call and ends with a block: awaited the call gives the opened one, and ``async with`` also ends it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar


class Closing(ABC):
    """What ends with the block of ``async with``."""

    @abstractmethod
    async def _leave(self) -> None:
        """Ends it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave()


Opened = TypeVar("Opened", bound=Closing)
P = ParamSpec("P")


class Opening(Coroutine[Any, Any, Opened], Generic[Opened]):
    """``opened = await opening`` or ``async with opening as opened``. As a coroutine it can also be a task."""

    def __init__(self, work: Coroutine[Any, Any, Opened]) -> None:
        self._work = work
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, Any, Opened]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    async def __aenter__(self) -> Opened:
        self._opened = await self._work
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, traceback)


def opening(method: Callable[P, Coroutine[Any, Any, Opened]]) -> Callable[P, Opening[Opened]]:
    """Makes a method that opens something usable in both ways."""

    @wraps(method)
    def opens(*args: P.args, **kwargs: P.kwargs) -> Opening[Opened]:
        return Opening(method(*args, **kwargs))

    return opens
