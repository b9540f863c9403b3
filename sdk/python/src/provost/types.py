"""What the gateway answers, as values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TypedDict

from .v1 import approvals_pb2, outcome_pb2, terminals_pb2


class Stream(Enum):
    """A stream of output."""

    #: stdout, or all output where stdout and stderr are one stream.
    STDOUT = terminals_pb2.OUTPUT_STREAM_STDOUT
    STDERR = terminals_pb2.OUTPUT_STREAM_STDERR


class OnAsk(Enum):
    """What happens if a rule asks a person."""

    #: The call waits for the answer.
    WAIT = terminals_pb2.ON_ASK_WAIT
    #: The call raises ``ApprovalRequired``; the approval stays open.
    REFUSE = terminals_pb2.ON_ASK_REFUSE


class SessionOptions(TypedDict, total=False):
    """How a session is opened."""

    #: The default working directory; else the first root.
    cwd: str | os.PathLike[str]
    #: The default environment.
    env: Mapping[str, str] | None
    labels: Mapping[str, str] | None
    #: The default profile.
    profile: str
    #: Whether the gateway closes the session when this process has ended (it does by default).
    ends_with_process: bool


class CommandOptions(TypedDict, total=False):
    """How a command runs. Limits are in seconds, and effective if they are shorter than the profile's."""

    cwd: str | os.PathLike[str]
    env: Mapping[str, str] | None
    #: Whether stdout and stderr are two streams.
    split: bool
    #: How long the command may run.
    time_limit: float | None
    #: How long the command may write no output.
    idle_limit: float | None
    #: The time between TERM and KILL.
    kill_grace: float | None
    profile: str
    labels: Mapping[str, str] | None
    on_ask: OnAsk


class CreateOptions(CommandOptions, total=False):
    """How a terminal is created."""

    #: Whether ``write`` can be used.
    stdin: bool
    #: Whether the command waits when its output is not read.
    wait_for_reader: bool
    #: How much output the gateway keeps of each stream, up to the profile's maximum.
    output_byte_limit: int | None
    #: Of the call, in seconds, the wait for an approval included.
    timeout: float | None


class Cause(Enum):
    """What ended a command."""

    UNKNOWN = outcome_pb2.EXIT_CAUSE_UNSPECIFIED
    EXITED = outcome_pb2.EXIT_CAUSE_EXITED
    SIGNALLED = outcome_pb2.EXIT_CAUSE_SIGNALLED
    KILLED = outcome_pb2.EXIT_CAUSE_KILLED
    TIME_LIMIT = outcome_pb2.EXIT_CAUSE_TIME_LIMIT
    IDLE_LIMIT = outcome_pb2.EXIT_CAUSE_IDLE_LIMIT
    MEMORY_LIMIT = outcome_pb2.EXIT_CAUSE_MEMORY_LIMIT
    SANDBOX_LOST = outcome_pb2.EXIT_CAUSE_SANDBOX_LOST
    SHUTDOWN = outcome_pb2.EXIT_CAUSE_SHUTDOWN


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    #: Absent if a signal ended the command, or if the end is unknown.
    exit_code: int | None
    #: Such as ``"SIGKILL"``.
    signal: str | None
    cause: Cause
    wall: timedelta
    #: The whole message, with usage and changes of the workspace.
    message: outcome_pb2.Outcome = field(repr=False, compare=False)

    @staticmethod
    def of(message: outcome_pb2.Outcome) -> Outcome:
        """Of the gateway's message."""
        end = message.WhichOneof("end")
        known = message.cause in outcome_pb2.ExitCause.values()
        return Outcome(
            exit_code=message.exit_code if end == "exit_code" else None,
            signal=message.signal if end == "signal" else None,
            cause=Cause(message.cause) if known else Cause.UNKNOWN,
            wall=message.usage.wall.ToTimedelta(),
            message=message,
        )


@dataclass(frozen=True)
class Chunk:
    """Bytes of output."""

    stream: Stream
    #: In bytes from the start of the stream.
    offset: int
    data: bytes


@dataclass(frozen=True)
class Gap:
    """Bytes that were dropped before they were read: those from ``start`` up to, but not with, ``end``."""

    stream: Stream
    start: int
    end: int


@dataclass(frozen=True)
class Exit:
    """The last event of a command."""

    outcome: Outcome


@dataclass(frozen=True)
class Result:
    """A command that has ended, and its output."""

    outcome: Outcome
    #: All output, or that of stdout with ``split``; its tail if it was longer than ``keep_bytes``.
    output: bytes
    #: Empty without ``split``.
    stderr: bytes
    #: Whether ``output`` or ``stderr`` is a tail.
    truncated: bool

    @property
    def exit_code(self) -> int | None:
        """As in ``outcome``."""
        return self.outcome.exit_code


@dataclass(frozen=True)
class TerminalInfo:
    """A terminal as the gateway lists it."""

    id: str
    session_id: str
    command: str
    args: tuple[str, ...]
    #: Absent while the command runs.
    outcome: Outcome | None
    message: terminals_pb2.Terminal = field(repr=False, compare=False)

    @staticmethod
    def of(message: terminals_pb2.Terminal) -> TerminalInfo:
        """Of the gateway's message."""
        return TerminalInfo(
            id=message.id,
            session_id=message.session_id,
            command=message.command,
            args=tuple(message.args),
            outcome=Outcome.of(message.outcome) if message.HasField("outcome") else None,
            message=message,
        )


@dataclass(frozen=True)
class Approval:
    """A request that a person may decide."""

    id: str
    #: ``PENDING``, ``APPROVED``, ``USED``, ``DENIED``, ``EXPIRED``, ``WITHDRAWN`` or ``SUPERSEDED``.
    state: str
    session_id: str
    principal: str
    command: str
    rule: str
    reason: str
    message: approvals_pb2.Approval = field(repr=False, compare=False)

    @staticmethod
    def of(message: approvals_pb2.Approval) -> Approval:
        """Of the gateway's message."""
        return Approval(
            id=message.id,
            state=approvals_pb2.ApprovalState.Name(message.state).removeprefix("APPROVAL_STATE_"),
            session_id=message.session_id,
            principal=message.principal,
            command=message.matched_command,
            rule=message.rule,
            reason=message.reason,
            message=message,
        )
