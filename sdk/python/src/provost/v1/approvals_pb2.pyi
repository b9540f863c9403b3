import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApprovalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPROVAL_STATE_UNSPECIFIED: _ClassVar[ApprovalState]
    APPROVAL_STATE_PENDING: _ClassVar[ApprovalState]
    APPROVAL_STATE_APPROVED: _ClassVar[ApprovalState]
    APPROVAL_STATE_USED: _ClassVar[ApprovalState]
    APPROVAL_STATE_DENIED: _ClassVar[ApprovalState]
    APPROVAL_STATE_EXPIRED: _ClassVar[ApprovalState]
    APPROVAL_STATE_WITHDRAWN: _ClassVar[ApprovalState]
    APPROVAL_STATE_SUPERSEDED: _ClassVar[ApprovalState]

class ApprovalDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPROVAL_DECISION_UNSPECIFIED: _ClassVar[ApprovalDecision]
    APPROVAL_DECISION_APPROVE: _ClassVar[ApprovalDecision]
    APPROVAL_DECISION_DENY: _ClassVar[ApprovalDecision]
APPROVAL_STATE_UNSPECIFIED: ApprovalState
APPROVAL_STATE_PENDING: ApprovalState
APPROVAL_STATE_APPROVED: ApprovalState
APPROVAL_STATE_USED: ApprovalState
APPROVAL_STATE_DENIED: ApprovalState
APPROVAL_STATE_EXPIRED: ApprovalState
APPROVAL_STATE_WITHDRAWN: ApprovalState
APPROVAL_STATE_SUPERSEDED: ApprovalState
APPROVAL_DECISION_UNSPECIFIED: ApprovalDecision
APPROVAL_DECISION_APPROVE: ApprovalDecision
APPROVAL_DECISION_DENY: ApprovalDecision

class Approval(_message.Message):
    __slots__ = ("id", "state", "session_id", "principal", "matched_command", "program", "shell_line", "args", "cwd", "profile", "env_names", "rule", "reason", "request_digest", "generation", "created_at", "expires_at", "has_waiting_call", "request_id", "answer", "exec", "connection", "others")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MATCHED_COMMAND_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SHELL_LINE_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    ENV_NAMES_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    HAS_WAITING_CALL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: ApprovalState
    session_id: str
    principal: str
    matched_command: str
    program: str
    shell_line: str
    args: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    profile: str
    env_names: _containers.RepeatedScalarFieldContainer[str]
    rule: str
    reason: str
    request_digest: str
    generation: int
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    has_waiting_call: bool
    request_id: str
    answer: ApprovalAnswer
    exec: ApprovalExec
    connection: ApprovalConnection
    others: _containers.RepeatedCompositeFieldContainer[AskedCommand]
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[ApprovalState, str]] = ..., session_id: _Optional[str] = ..., principal: _Optional[str] = ..., matched_command: _Optional[str] = ..., program: _Optional[str] = ..., shell_line: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., profile: _Optional[str] = ..., env_names: _Optional[_Iterable[str]] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ..., request_digest: _Optional[str] = ..., generation: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., has_waiting_call: _Optional[bool] = ..., request_id: _Optional[str] = ..., answer: _Optional[_Union[ApprovalAnswer, _Mapping]] = ..., exec: _Optional[_Union[ApprovalExec, _Mapping]] = ..., connection: _Optional[_Union[ApprovalConnection, _Mapping]] = ..., others: _Optional[_Iterable[_Union[AskedCommand, _Mapping]]] = ...) -> None: ...

class AskedCommand(_message.Message):
    __slots__ = ("command", "rule", "reason")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    command: str
    rule: str
    reason: str
    def __init__(self, command: _Optional[str] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ApprovalConnection(_message.Message):
    __slots__ = ("terminal_id", "host", "port", "addresses")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    host: str
    port: int
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, terminal_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class ApprovalExec(_message.Message):
    __slots__ = ("terminal_id", "file", "interpreters", "args_omitted")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    INTERPRETERS_FIELD_NUMBER: _ClassVar[int]
    ARGS_OMITTED_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    file: str
    interpreters: _containers.RepeatedScalarFieldContainer[str]
    args_omitted: int
    def __init__(self, terminal_id: _Optional[str] = ..., file: _Optional[str] = ..., interpreters: _Optional[_Iterable[str]] = ..., args_omitted: _Optional[int] = ...) -> None: ...

class ApprovalAnswer(_message.Message):
    __slots__ = ("decision", "approver", "on_behalf_of", "comment", "answered_at")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    APPROVER_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_AT_FIELD_NUMBER: _ClassVar[int]
    decision: ApprovalDecision
    approver: str
    on_behalf_of: str
    comment: str
    answered_at: _timestamp_pb2.Timestamp
    def __init__(self, decision: _Optional[_Union[ApprovalDecision, str]] = ..., approver: _Optional[str] = ..., on_behalf_of: _Optional[str] = ..., comment: _Optional[str] = ..., answered_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListApprovalsRequest(_message.Message):
    __slots__ = ("session_id", "pending_only", "page_size", "page_token")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PENDING_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    pending_only: bool
    page_size: int
    page_token: str
    def __init__(self, session_id: _Optional[str] = ..., pending_only: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListApprovalsResponse(_message.Message):
    __slots__ = ("approvals", "next_page_token")
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    approvals: _containers.RepeatedCompositeFieldContainer[Approval]
    next_page_token: str
    def __init__(self, approvals: _Optional[_Iterable[_Union[Approval, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchApprovalsRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class WatchApprovalsResponse(_message.Message):
    __slots__ = ("approval",)
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping]] = ...) -> None: ...

class ResolveApprovalRequest(_message.Message):
    __slots__ = ("approval_id", "decision", "comment", "on_behalf_of")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    ON_BEHALF_OF_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    decision: ApprovalDecision
    comment: str
    on_behalf_of: str
    def __init__(self, approval_id: _Optional[str] = ..., decision: _Optional[_Union[ApprovalDecision, str]] = ..., comment: _Optional[str] = ..., on_behalf_of: _Optional[str] = ...) -> None: ...

class ResolveApprovalResponse(_message.Message):
    __slots__ = ("approval",)
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping]] = ...) -> None: ...
