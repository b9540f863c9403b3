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
    cwd: str | bytes | os.PathLike[str] | os.PathLike[bytes]
    #: The default environment.
    env: Mapping[str, str | bytes] | None
    labels: Mapping[str, str] | None
    #: The default profile.
    profile: str
    #: Whether the gateway closes the session when this process has ended (it does by default).
    ends_with_process: bool


class CommandOptions(TypedDict, total=False):
    """How a command runs. Limits are in seconds, and effective if they are shorter than the profile's."""

    cwd: str | bytes | os.PathLike[str] | os.PathLike[bytes]
    env: Mapping[str, str | bytes] | None
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
    #: What the files that it makes are not open for; this process's by default.
    umask: int | None


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


class ShellOptions(TypedDict, total=False):
    """How a shell is kept. Times are in seconds, and of the shell's whole life."""

    cwd: str | bytes | os.PathLike[str] | os.PathLike[bytes]
    env: Mapping[str, str | bytes] | None
    #: Columns and rows of its terminal; 80 and 24 by default.
    size: tuple[int, int]
    #: How long the shell may live.
    time_limit: float | None
    #: How long it may write no output.
    idle_limit: float | None
    #: The time between TERM and KILL.
    kill_grace: float | None
    profile: str
    labels: Mapping[str, str] | None
    on_ask: OnAsk
    #: What the files that its lines make are not open for; this process's by default.
    umask: int | None
    #: How much output the gateway keeps, up to the profile's maximum.
    output_byte_limit: int | None
    #: Of the call, in seconds, the wait for an approval included.
    timeout: float | None


class LineOptions(TypedDict, total=False):
    """How a line runs in a kept shell."""

    #: Whether the line waits for the lines before it; else it is refused while one runs (``SHELL_BUSY``).
    queue: bool
    on_ask: OnAsk
    #: If the shell's marks are missing: how many seconds it must wait for input, without output, to count as idle.
    quiet_limit: float | None


class LineEnding(Enum):
    """How the end of a line was found."""

    UNKNOWN = terminals_pb2.LINE_ENDING_UNSPECIFIED
    #: The shell has answered a question that was asked after the line.
    CONFIRMED = terminals_pb2.LINE_ENDING_CONFIRMED
    #: The shell waits for input and nothing more came: the line is over, or is a ``read``.
    QUIET = terminals_pb2.LINE_ENDING_QUIET
    #: The shell has ended, and with it the terminal.
    SHELL_ENDED = terminals_pb2.LINE_ENDING_SHELL_ENDED


class LineDoubt(Enum):
    """What makes the answer to a line doubtful."""

    UNKNOWN = terminals_pb2.LINE_DOUBT_UNSPECIFIED
    #: The shell's marks of the line's start or end did not come.
    MARKS_MISSING = terminals_pb2.LINE_DOUBT_MARKS_MISSING
    #: Marks came that the shell cannot have written.
    MARKS_FALSE = terminals_pb2.LINE_DOUBT_MARKS_FALSE
    #: The shell's process executes another program.
    SHELL_REPLACED = terminals_pb2.LINE_DOUBT_SHELL_REPLACED
    #: A program took the whole screen: the output is not text.
    FULL_SCREEN = terminals_pb2.LINE_DOUBT_FULL_SCREEN
    #: Output was overwritten before it was read.
    OUTPUT_LOST = terminals_pb2.LINE_DOUBT_OUTPUT_LOST


class ShellActivity(Enum):
    """What a kept shell does."""

    UNKNOWN = terminals_pb2.SHELL_ACTIVITY_UNSPECIFIED
    #: It is at its prompt.
    IDLE = terminals_pb2.SHELL_ACTIVITY_IDLE
    BUSY = terminals_pb2.SHELL_ACTIVITY_BUSY
    WAITING_FOR_INPUT = terminals_pb2.SHELL_ACTIVITY_WAITING_FOR_INPUT
    ENDED = terminals_pb2.SHELL_ACTIVITY_ENDED


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
    #: Processes that the command had left running when it ended by itself: they ended with it.
    ended_processes: int
    #: The names of their programs, each once, at most 8.
    ended_commands: tuple[str, ...]
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
            ended_processes=message.ended_processes,
            ended_commands=tuple(message.ended_commands),
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


@dataclass(frozen=True)
class LineStarted:
    """The first event of a line."""

    #: For ``write_line``.
    line_id: str
    #: Where its output starts in the terminal's.
    offset: int


@dataclass(frozen=True)
class LineWaits:
    """What the line runs waits for input."""

    #: For ``write_line``.
    line_id: str


@dataclass(frozen=True)
class LineEnd:
    """The last event of a line. What it says is what the shell says, which a line can make say anything."""

    ending: LineEnding
    #: Absent: unknown.
    exit_code: int | None
    #: Its output in the terminal's: from ``start`` up to, but not with, ``end``.
    start: int
    end: int
    #: Empty: nothing is doubtful.
    doubts: frozenset[LineDoubt]
    #: The shell's directory; absent: unknown.
    cwd: str | None
    #: With ``LineEnding.SHELL_ENDED``.
    outcome: Outcome | None

    @property
    def marks_seen(self) -> bool:
        """Whether the shell's marks of the line's start and end came."""
        return LineDoubt.MARKS_MISSING not in self.doubts

    @staticmethod
    def of(message: terminals_pb2.LineEnd) -> LineEnd:
        """Of the gateway's message."""
        endings, doubts = terminals_pb2.LineEnding.values(), terminals_pb2.LineDoubt.values()
        return LineEnd(
            ending=LineEnding(message.ending) if message.ending in endings else LineEnding.UNKNOWN,
            exit_code=message.exit_status if message.HasField("exit_status") else None,
            start=message.start_offset,
            end=message.end_offset,
            doubts=frozenset(
                LineDoubt(doubt) if doubt in doubts else LineDoubt.UNKNOWN for doubt in message.doubts
            ),
            cwd=message.cwd or None,
            outcome=Outcome.of(message.outcome) if message.HasField("outcome") else None,
        )


@dataclass(frozen=True)
class LineResult:
    """A line that is over, and its output."""

    end: LineEnd
    #: As the terminal has it, with ``\r\n`` at the end of lines; its tail if it was longer than ``keep_bytes``.
    output: bytes
    #: Whether ``output`` is a tail, or has a gap.
    truncated: bool

    @property
    def exit_code(self) -> int | None:
        """As in ``end``."""
        return self.end.exit_code

    @property
    def text(self) -> str:
        """The output as programs wrote it: with ``\n`` at the end of lines."""
        return self.output.decode(errors="replace").replace("\r\n", "\n")


@dataclass(frozen=True)
class ShellStatus:
    """A kept shell at this moment."""

    activity: ShellActivity
    #: The directory that it named last; absent: it was not asked.
    cwd: str | None
    #: The line that runs.
    line_id: str | None
    #: How many lines wait for their turn.
    queued_lines: int

    @staticmethod
    def of(message: terminals_pb2.GetShellResponse) -> ShellStatus:
        """Of the gateway's message."""
        known = message.activity in terminals_pb2.ShellActivity.values()
        return ShellStatus(
            activity=ShellActivity(message.activity) if known else ShellActivity.UNKNOWN,
            cwd=message.cwd or None,
            line_id=message.line_id or None,
            queued_lines=message.queued_lines,
        )
