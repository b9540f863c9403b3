import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from provost.v1 import outcome_pb2 as _outcome_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lifetime(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIFETIME_UNSPECIFIED: _ClassVar[Lifetime]
    LIFETIME_EXPLICIT: _ClassVar[Lifetime]
    LIFETIME_OWNER_PROCESS: _ClassVar[Lifetime]

class WorkspaceExtent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKSPACE_EXTENT_UNSPECIFIED: _ClassVar[WorkspaceExtent]
    WORKSPACE_EXTENT_REPOSITORY: _ClassVar[WorkspaceExtent]

class Bypass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BYPASS_UNSPECIFIED: _ClassVar[Bypass]
    BYPASS_COMMAND_RUN: _ClassVar[Bypass]
    BYPASS_AGENT_NOT_COVERED: _ClassVar[Bypass]
LIFETIME_UNSPECIFIED: Lifetime
LIFETIME_EXPLICIT: Lifetime
LIFETIME_OWNER_PROCESS: Lifetime
WORKSPACE_EXTENT_UNSPECIFIED: WorkspaceExtent
WORKSPACE_EXTENT_REPOSITORY: WorkspaceExtent
BYPASS_UNSPECIFIED: Bypass
BYPASS_COMMAND_RUN: Bypass
BYPASS_AGENT_NOT_COVERED: Bypass

class EnvVar(_message.Message):
    __slots__ = ("name", "value", "name_bytes", "value_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    name_bytes: bytes
    value_bytes: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., name_bytes: _Optional[bytes] = ..., value_bytes: _Optional[bytes] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("roots", "cwd", "env", "labels", "profile", "lifetime", "request_id", "read_only_roots", "extent", "name", "network", "owner_process", "front_end", "ssh_agent", "roots_bytes", "read_only_roots_bytes", "cwd_bytes")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_ROOTS_FIELD_NUMBER: _ClassVar[int]
    EXTENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    OWNER_PROCESS_FIELD_NUMBER: _ClassVar[int]
    FRONT_END_FIELD_NUMBER: _ClassVar[int]
    SSH_AGENT_FIELD_NUMBER: _ClassVar[int]
    ROOTS_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_ROOTS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CWD_BYTES_FIELD_NUMBER: _ClassVar[int]
    roots: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    env: _containers.RepeatedCompositeFieldContainer[EnvVar]
    labels: _containers.ScalarMap[str, str]
    profile: str
    lifetime: Lifetime
    request_id: str
    read_only_roots: _containers.RepeatedScalarFieldContainer[str]
    extent: WorkspaceExtent
    name: str
    network: _outcome_pb2.Network
    owner_process: ProcessIdentity
    front_end: str
    ssh_agent: str
    roots_bytes: _containers.RepeatedScalarFieldContainer[bytes]
    read_only_roots_bytes: _containers.RepeatedScalarFieldContainer[bytes]
    cwd_bytes: bytes
    def __init__(self, roots: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., env: _Optional[_Iterable[_Union[EnvVar, _Mapping]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., profile: _Optional[str] = ..., lifetime: _Optional[_Union[Lifetime, str]] = ..., request_id: _Optional[str] = ..., read_only_roots: _Optional[_Iterable[str]] = ..., extent: _Optional[_Union[WorkspaceExtent, str]] = ..., name: _Optional[str] = ..., network: _Optional[_Union[_outcome_pb2.Network, str]] = ..., owner_process: _Optional[_Union[ProcessIdentity, _Mapping]] = ..., front_end: _Optional[str] = ..., ssh_agent: _Optional[str] = ..., roots_bytes: _Optional[_Iterable[bytes]] = ..., read_only_roots_bytes: _Optional[_Iterable[bytes]] = ..., cwd_bytes: _Optional[bytes] = ...) -> None: ...

class ProcessIdentity(_message.Message):
    __slots__ = ("pid", "start_ticks")
    PID_FIELD_NUMBER: _ClassVar[int]
    START_TICKS_FIELD_NUMBER: _ClassVar[int]
    pid: int
    start_ticks: int
    def __init__(self, pid: _Optional[int] = ..., start_ticks: _Optional[int] = ...) -> None: ...

class CreateSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("id", "owner", "roots", "cwd", "env", "labels", "profile", "lifetime", "created_at", "live_terminals", "finished_terminals", "primary_terminal_id", "read_only_roots", "repository", "name", "network", "owner_process", "front_end", "git_left_out")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LIVE_TERMINALS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TERMINALS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_ROOTS_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    OWNER_PROCESS_FIELD_NUMBER: _ClassVar[int]
    FRONT_END_FIELD_NUMBER: _ClassVar[int]
    GIT_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    owner: str
    roots: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    env: _containers.RepeatedCompositeFieldContainer[EnvVar]
    labels: _containers.ScalarMap[str, str]
    profile: str
    lifetime: Lifetime
    created_at: _timestamp_pb2.Timestamp
    live_terminals: int
    finished_terminals: int
    primary_terminal_id: str
    read_only_roots: _containers.RepeatedScalarFieldContainer[str]
    repository: _outcome_pb2.Repository
    name: str
    network: _outcome_pb2.Network
    owner_process: ProcessIdentity
    front_end: str
    git_left_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., owner: _Optional[str] = ..., roots: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., env: _Optional[_Iterable[_Union[EnvVar, _Mapping]]] = ..., labels: _Optional[_Mapping[str, str]] = ..., profile: _Optional[str] = ..., lifetime: _Optional[_Union[Lifetime, str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., live_terminals: _Optional[int] = ..., finished_terminals: _Optional[int] = ..., primary_terminal_id: _Optional[str] = ..., read_only_roots: _Optional[_Iterable[str]] = ..., repository: _Optional[_Union[_outcome_pb2.Repository, _Mapping]] = ..., name: _Optional[str] = ..., network: _Optional[_Union[_outcome_pb2.Network, str]] = ..., owner_process: _Optional[_Union[ProcessIdentity, _Mapping]] = ..., front_end: _Optional[str] = ..., git_left_out: _Optional[_Iterable[str]] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class GetSessionResponse(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "next_page_token")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    next_page_token: str
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetPrimaryTerminalRequest(_message.Message):
    __slots__ = ("session_id", "terminal_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    terminal_id: str
    def __init__(self, session_id: _Optional[str] = ..., terminal_id: _Optional[str] = ...) -> None: ...

class SetPrimaryTerminalResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportBypassRequest(_message.Message):
    __slots__ = ("session_id", "bypass")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    BYPASS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    bypass: Bypass
    def __init__(self, session_id: _Optional[str] = ..., bypass: _Optional[_Union[Bypass, str]] = ...) -> None: ...

class ReportBypassResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
