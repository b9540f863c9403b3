"""Client of Provost, a sandboxed command-execution gateway.

``Gateway`` is for ordinary code, ``AsyncGateway`` for asyncio; both have the same methods::

    with Gateway() as gateway, gateway.open_session(["/work/project"]) as session:
        result = session.run("make", "test", time_limit=600)
        print(result.exit_code, result.output.decode())
"""

# First: it says how gRPC is to be imported.
from . import _fork as _fork  # isort: skip
from ._aio import AsyncGateway, AsyncSession
from ._shell import AsyncShell
from ._sync import Gateway, Session, Shell, Terminal
from ._terminal import AsyncTerminal
from .errors import (
    ApprovalRefused,
    ApprovalRequired,
    DeadlineExceeded,
    Denied,
    Forked,
    GatewayUnavailable,
    InvalidField,
    NotFound,
    OutputLost,
    ProvostError,
    QuotaReached,
    SpawnFailed,
    UnsupportedRuntime,
)
from .types import (
    Approval,
    Cause,
    Chunk,
    Exit,
    Gap,
    LineDoubt,
    LineEnd,
    LineEnding,
    LineResult,
    LineStarted,
    LineWaits,
    OnAsk,
    Outcome,
    Result,
    ShellActivity,
    ShellStatus,
    Stream,
    TerminalInfo,
)

__all__ = [
    "Approval",
    "ApprovalRefused",
    "ApprovalRequired",
    "AsyncGateway",
    "AsyncSession",
    "AsyncShell",
    "AsyncTerminal",
    "Cause",
    "Chunk",
    "DeadlineExceeded",
    "Denied",
    "Exit",
    "Forked",
    "Gap",
    "Gateway",
    "GatewayUnavailable",
    "InvalidField",
    "LineDoubt",
    "LineEnd",
    "LineEnding",
    "LineResult",
    "LineStarted",
    "LineWaits",
    "NotFound",
    "OnAsk",
    "Outcome",
    "OutputLost",
    "ProvostError",
    "QuotaReached",
    "Result",
    "Session",
    "Shell",
    "ShellActivity",
    "ShellStatus",
    "SpawnFailed",
    "Stream",
    "Terminal",
    "TerminalInfo",
    "UnsupportedRuntime",
]
