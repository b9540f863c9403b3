"""Client of Provost, a sandboxed command-execution gateway.

``Gateway`` is for ordinary code, ``AsyncGateway`` for asyncio; both have the same methods::

    with Gateway() as gateway, gateway.open_session(["/work/project"]) as session:
        result = session.run("make", "test", time_limit=600)
        print(result.exit_code, result.output.decode())
"""

from ._aio import AsyncGateway, AsyncSession, AsyncTerminal
from ._sync import Gateway, Session, Terminal
from .errors import (
    ApprovalRefused,
    ApprovalRequired,
    DeadlineExceeded,
    Denied,
    GatewayUnavailable,
    InvalidField,
    NotFound,
    OutputLost,
    ProvostError,
    QuotaReached,
    SpawnFailed,
)
from .types import Approval, Cause, Chunk, Exit, Gap, OnAsk, Outcome, Result, Stream, TerminalInfo

__all__ = [
    "Approval",
    "ApprovalRefused",
    "ApprovalRequired",
    "AsyncGateway",
    "AsyncSession",
    "AsyncTerminal",
    "Cause",
    "Chunk",
    "DeadlineExceeded",
    "Denied",
    "Exit",
    "Gap",
    "Gateway",
    "GatewayUnavailable",
    "InvalidField",
    "NotFound",
    "OnAsk",
    "Outcome",
    "OutputLost",
    "ProvostError",
    "QuotaReached",
    "Result",
    "Session",
    "SpawnFailed",
    "Stream",
    "Terminal",
    "TerminalInfo",
]
