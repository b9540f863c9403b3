"""Texts of a request that may be no UTF-8, in the fields in which the gateway takes them, and this process's umask."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from .v1 import sessions_pb2 as sessions
from .v1 import terminals_pb2 as terminals

#: A string with what ``os.fsdecode`` makes of bytes that are no UTF-8, or the bytes.
Text = str | bytes

_Message = sessions.EnvVar | sessions.CreateSessionRequest | terminals.CreateTerminalRequest


def put(message: _Message, field: str, text: Text | os.PathLike[str] | os.PathLike[bytes]) -> None:
    """Sets a field, or the one for bytes next to it."""
    data = _encoded(text)
    try:
        setattr(message, field, data.decode())
    except UnicodeDecodeError:
        setattr(message, f"{field}_bytes", data)


def put_all(message: _Message, field: str, texts: Iterable[Text]) -> None:
    """As ``put``, of a list."""
    data = [_encoded(text) for text in texts]
    try:
        decoded = [one.decode() for one in data]
    except UnicodeDecodeError:
        getattr(message, f"{field}_bytes").extend(data)
    else:
        getattr(message, field).extend(decoded)


def env(variables: Mapping[str, Text] | None) -> list[sessions.EnvVar]:
    """Variables of a request."""
    made = []
    for name, value in (variables or {}).items():
        variable = sessions.EnvVar()
        put(variable, "name", name)
        put(variable, "value", value)
        made.append(variable)
    return made


def own_umask() -> int | None:
    """Read without setting it, which no other thread may see."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return None


def _encoded(text: Text | os.PathLike[str] | os.PathLike[bytes]) -> bytes:
    path = os.fspath(text)
    return path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
