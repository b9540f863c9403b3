"""The errors of the gateway, by what a caller does about them.

Each has the gateway's ``reason`` (docs/errors.md), which is stable. The message is for people.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

_DOMAIN = "provost"
_DETAILS = "grpc-status-details-bin"


class ProvostError(Exception):
    """Any error of a call."""

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The status of gRPC.
        self.code = code
        #: A word of docs/errors.md; empty if the error is not the gateway's own.
        self.reason = reason
        #: What the gateway says of the error: rule, field, stage, errno, path.
        self.metadata: Mapping[str, str] = dict(metadata or {})

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.reason else self.message


class Denied(ProvostError):
    """Policy denies the command."""

    @property
    def rule(self) -> str:
        """The rule that decided."""
        return self.metadata.get("rule", "")


class ApprovalRequired(Denied):
    """A rule asks a person. Once approved, the same request runs."""

    @property
    def approval_id(self) -> str:
        """The open approval."""
        return self.metadata.get("approval_id", "")


class ApprovalRefused(Denied):
    """A person said no, or nobody answered in time."""

    @property
    def approval_id(self) -> str:
        """The approval."""
        return self.metadata.get("approval_id", "")


class InvalidField(ProvostError):
    """A field of the request is wrong."""

    @property
    def field(self) -> str:
        """Its name."""
        return self.metadata.get("field", "")


class NotFound(ProvostError):
    """The session, terminal or approval does not exist for this caller."""


class QuotaReached(ProvostError):
    """A quota or a limit is used up."""


class SpawnFailed(ProvostError):
    """The command could not be started; nothing ran."""

    @property
    def stage(self) -> str:
        """The step that failed."""
        return self.metadata.get("stage", "")

    @property
    def path(self) -> str:
        """The file that it failed at, if it is known."""
        return self.metadata.get("path", "")


class DeadlineExceeded(ProvostError, TimeoutError):
    """The time of the call is over."""


class GatewayUnavailable(ProvostError):
    """No gateway answered for as long as ``reconnect_for`` says, or the call cannot be repeated."""


class Forked(ProvostError, RuntimeError):
    """This process was forked while calls were under way, and cannot make any."""


class UnsupportedRuntime(ProvostError, RuntimeError):
    """The client cannot work in this process, because threads were replaced in it."""


class OutputLost(ProvostError):
    """Output was lost with the sandbox that held it, or dropped before it was read."""


_BY_REASON: Mapping[str, type[ProvostError]] = {
    "POLICY_DENIED": Denied,
    "APPROVAL_REQUIRED": ApprovalRequired,
    "APPROVAL_DENIED": ApprovalRefused,
    "APPROVAL_EXPIRED": ApprovalRefused,
    "OUTPUT_LOST": OutputLost,
    "DRAINING": GatewayUnavailable,
    **dict.fromkeys(
        (
            "COMMAND_NOT_FOUND",
            "NOT_EXECUTABLE",
            "PERMISSION_DENIED",
            "BAD_INTERPRETER",
            "CWD_GONE",
            "CWD_NOT_A_DIRECTORY",
            "ARGUMENT_LIST_TOO_LONG",
            "LIMIT_REACHED",
            "CONFINEMENT_UNAVAILABLE",
            "ROOT_GONE",
            "PROGRAM_CHANGED",
            "SECRET_UNAVAILABLE",
            "SANDBOX_LOST",
        ),
        SpawnFailed,
    ),
}

_BY_CODE: Mapping[grpc.StatusCode, type[ProvostError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidField,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.RESOURCE_EXHAUSTED: QuotaReached,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: GatewayUnavailable,
}

#: What a connection that breaks off looks like, when the gateway has said nothing itself.
_BROKEN_OFF = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
    )
)


def from_rpc(error: grpc.aio.AioRpcError) -> ProvostError:
    """The error that a status of gRPC stands for."""
    info = _error_info(error)
    reason, metadata = (info.reason, dict(info.metadata)) if info else ("", {})
    kind = _BY_REASON.get(reason) or _BY_CODE.get(error.code()) or ProvostError
    return kind(error.details() or error.code().name, code=error.code(), reason=reason, metadata=metadata)


def is_outage(error: ProvostError) -> bool:
    """Whether another gateway, or the same one a little later, may answer."""
    if error.reason:
        return error.reason == "DRAINING"
    return error.code in _BROKEN_OFF


def _error_info(error: grpc.aio.AioRpcError) -> ErrorInfo | None:
    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS or not isinstance(value, bytes):
            continue
        for detail in Status.FromString(value).details:
            info = ErrorInfo()
            if detail.Unpack(info) and info.domain == _DOMAIN:
                return info
    return None
