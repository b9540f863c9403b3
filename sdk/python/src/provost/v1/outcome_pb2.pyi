import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExitCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXIT_CAUSE_UNSPECIFIED: _ClassVar[ExitCause]
    EXIT_CAUSE_EXITED: _ClassVar[ExitCause]
    EXIT_CAUSE_SIGNALLED: _ClassVar[ExitCause]
    EXIT_CAUSE_KILLED: _ClassVar[ExitCause]
    EXIT_CAUSE_TIME_LIMIT: _ClassVar[ExitCause]
    EXIT_CAUSE_IDLE_LIMIT: _ClassVar[ExitCause]
    EXIT_CAUSE_MEMORY_LIMIT: _ClassVar[ExitCause]
    EXIT_CAUSE_SANDBOX_LOST: _ClassVar[ExitCause]
    EXIT_CAUSE_SHUTDOWN: _ClassVar[ExitCause]

class ExecDenialCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXEC_DENIAL_CAUSE_UNSPECIFIED: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_RULE: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_DEFAULT: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_CHANGED: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_UNREADABLE: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_TRACED: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_UNAVAILABLE: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_ASK_REFUSED: _ClassVar[ExecDenialCause]
    EXEC_DENIAL_CAUSE_ASK_EXPIRED: _ClassVar[ExecDenialCause]

class WorkspaceAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKSPACE_ACTION_UNSPECIFIED: _ClassVar[WorkspaceAction]
    WORKSPACE_ACTION_RESTORED: _ClassVar[WorkspaceAction]
    WORKSPACE_ACTION_QUARANTINED: _ClassVar[WorkspaceAction]
    WORKSPACE_ACTION_REPORTED: _ClassVar[WorkspaceAction]
    WORKSPACE_ACTION_FAILED: _ClassVar[WorkspaceAction]

class MemoryPeakSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_PEAK_SOURCE_UNSPECIFIED: _ClassVar[MemoryPeakSource]
    MEMORY_PEAK_SOURCE_CGROUP: _ClassVar[MemoryPeakSource]
    MEMORY_PEAK_SOURCE_LARGEST_PROCESS: _ClassVar[MemoryPeakSource]

class Network(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NETWORK_UNSPECIFIED: _ClassVar[Network]
    NETWORK_NONE: _ClassVar[Network]
    NETWORK_HOST: _ClassVar[Network]
    NETWORK_PROXY: _ClassVar[Network]
EXIT_CAUSE_UNSPECIFIED: ExitCause
EXIT_CAUSE_EXITED: ExitCause
EXIT_CAUSE_SIGNALLED: ExitCause
EXIT_CAUSE_KILLED: ExitCause
EXIT_CAUSE_TIME_LIMIT: ExitCause
EXIT_CAUSE_IDLE_LIMIT: ExitCause
EXIT_CAUSE_MEMORY_LIMIT: ExitCause
EXIT_CAUSE_SANDBOX_LOST: ExitCause
EXIT_CAUSE_SHUTDOWN: ExitCause
EXEC_DENIAL_CAUSE_UNSPECIFIED: ExecDenialCause
EXEC_DENIAL_CAUSE_RULE: ExecDenialCause
EXEC_DENIAL_CAUSE_DEFAULT: ExecDenialCause
EXEC_DENIAL_CAUSE_CHANGED: ExecDenialCause
EXEC_DENIAL_CAUSE_UNREADABLE: ExecDenialCause
EXEC_DENIAL_CAUSE_TRACED: ExecDenialCause
EXEC_DENIAL_CAUSE_UNAVAILABLE: ExecDenialCause
EXEC_DENIAL_CAUSE_ASK_REFUSED: ExecDenialCause
EXEC_DENIAL_CAUSE_ASK_EXPIRED: ExecDenialCause
WORKSPACE_ACTION_UNSPECIFIED: WorkspaceAction
WORKSPACE_ACTION_RESTORED: WorkspaceAction
WORKSPACE_ACTION_QUARANTINED: WorkspaceAction
WORKSPACE_ACTION_REPORTED: WorkspaceAction
WORKSPACE_ACTION_FAILED: WorkspaceAction
MEMORY_PEAK_SOURCE_UNSPECIFIED: MemoryPeakSource
MEMORY_PEAK_SOURCE_CGROUP: MemoryPeakSource
MEMORY_PEAK_SOURCE_LARGEST_PROCESS: MemoryPeakSource
NETWORK_UNSPECIFIED: Network
NETWORK_NONE: Network
NETWORK_HOST: Network
NETWORK_PROXY: Network

class Outcome(_message.Message):
    __slots__ = ("exit_code", "signal", "cause", "usage", "started_at", "ended_at", "survivors", "stragglers_killed", "core_dumped", "workspace_changes", "workspace_changes_omitted", "workspace_shortfall", "exec_denials", "exec_denials_omitted", "connect_denials", "connect_denials_omitted", "unreachable", "ended_processes", "ended_commands", "protection_hints")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    STRAGGLERS_KILLED_FIELD_NUMBER: _ClassVar[int]
    CORE_DUMPED_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_CHANGES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_CHANGES_OMITTED_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_SHORTFALL_FIELD_NUMBER: _ClassVar[int]
    EXEC_DENIALS_FIELD_NUMBER: _ClassVar[int]
    EXEC_DENIALS_OMITTED_FIELD_NUMBER: _ClassVar[int]
    CONNECT_DENIALS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_DENIALS_OMITTED_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    ENDED_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    ENDED_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_HINTS_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    signal: str
    cause: ExitCause
    usage: Usage
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    survivors: int
    stragglers_killed: int
    core_dumped: bool
    workspace_changes: _containers.RepeatedCompositeFieldContainer[WorkspaceChange]
    workspace_changes_omitted: int
    workspace_shortfall: str
    exec_denials: _containers.RepeatedCompositeFieldContainer[ExecDenial]
    exec_denials_omitted: int
    connect_denials: _containers.RepeatedCompositeFieldContainer[ConnectDenial]
    connect_denials_omitted: int
    unreachable: Unreachable
    ended_processes: int
    ended_commands: _containers.RepeatedScalarFieldContainer[str]
    protection_hints: _containers.RepeatedCompositeFieldContainer[ProtectionHint]
    def __init__(self, exit_code: _Optional[int] = ..., signal: _Optional[str] = ..., cause: _Optional[_Union[ExitCause, str]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., survivors: _Optional[int] = ..., stragglers_killed: _Optional[int] = ..., core_dumped: _Optional[bool] = ..., workspace_changes: _Optional[_Iterable[_Union[WorkspaceChange, _Mapping]]] = ..., workspace_changes_omitted: _Optional[int] = ..., workspace_shortfall: _Optional[str] = ..., exec_denials: _Optional[_Iterable[_Union[ExecDenial, _Mapping]]] = ..., exec_denials_omitted: _Optional[int] = ..., connect_denials: _Optional[_Iterable[_Union[ConnectDenial, _Mapping]]] = ..., connect_denials_omitted: _Optional[int] = ..., unreachable: _Optional[_Union[Unreachable, _Mapping]] = ..., ended_processes: _Optional[int] = ..., ended_commands: _Optional[_Iterable[str]] = ..., protection_hints: _Optional[_Iterable[_Union[ProtectionHint, _Mapping]]] = ...) -> None: ...

class ProtectionHint(_message.Message):
    __slots__ = ("error", "path", "protection", "key")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    error: str
    path: str
    protection: str
    key: str
    def __init__(self, error: _Optional[str] = ..., path: _Optional[str] = ..., protection: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class Unreachable(_message.Message):
    __slots__ = ("names", "names_omitted", "no_route", "network", "offered")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    NAMES_OMITTED_FIELD_NUMBER: _ClassVar[int]
    NO_ROUTE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    names_omitted: int
    no_route: int
    network: Network
    offered: _containers.RepeatedScalarFieldContainer[Network]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., names_omitted: _Optional[int] = ..., no_route: _Optional[int] = ..., network: _Optional[_Union[Network, str]] = ..., offered: _Optional[_Iterable[_Union[Network, str]]] = ...) -> None: ...

class ConnectDenial(_message.Message):
    __slots__ = ("host", "port", "rule", "reason", "denied_at", "method", "path")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DENIED_AT_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    rule: str
    reason: str
    denied_at: _timestamp_pb2.Timestamp
    method: str
    path: str
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ..., denied_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., method: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class ExecDenial(_message.Message):
    __slots__ = ("program", "args", "args_omitted", "cwd", "cause", "rule", "reason", "denied_at")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ARGS_OMITTED_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DENIED_AT_FIELD_NUMBER: _ClassVar[int]
    program: str
    args: _containers.RepeatedScalarFieldContainer[str]
    args_omitted: int
    cwd: str
    cause: ExecDenialCause
    rule: str
    reason: str
    denied_at: _timestamp_pb2.Timestamp
    def __init__(self, program: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., args_omitted: _Optional[int] = ..., cwd: _Optional[str] = ..., cause: _Optional[_Union[ExecDenialCause, str]] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ..., denied_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WorkspaceChange(_message.Message):
    __slots__ = ("path", "description", "action", "failure")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    path: str
    description: str
    action: WorkspaceAction
    failure: str
    def __init__(self, path: _Optional[str] = ..., description: _Optional[str] = ..., action: _Optional[_Union[WorkspaceAction, str]] = ..., failure: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("wall", "cpu_user", "cpu_system", "memory_peak_bytes", "memory_peak_source", "io_read_bytes", "io_write_bytes")
    WALL_FIELD_NUMBER: _ClassVar[int]
    CPU_USER_FIELD_NUMBER: _ClassVar[int]
    CPU_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_SOURCE_FIELD_NUMBER: _ClassVar[int]
    IO_READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    IO_WRITE_BYTES_FIELD_NUMBER: _ClassVar[int]
    wall: _duration_pb2.Duration
    cpu_user: _duration_pb2.Duration
    cpu_system: _duration_pb2.Duration
    memory_peak_bytes: int
    memory_peak_source: MemoryPeakSource
    io_read_bytes: int
    io_write_bytes: int
    def __init__(self, wall: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cpu_user: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cpu_system: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., memory_peak_bytes: _Optional[int] = ..., memory_peak_source: _Optional[_Union[MemoryPeakSource, str]] = ..., io_read_bytes: _Optional[int] = ..., io_write_bytes: _Optional[int] = ...) -> None: ...

class Repository(_message.Message):
    __slots__ = ("worktree", "git_directory", "not_taken")
    WORKTREE_FIELD_NUMBER: _ClassVar[int]
    GIT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    NOT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    worktree: str
    git_directory: str
    not_taken: str
    def __init__(self, worktree: _Optional[str] = ..., git_directory: _Optional[str] = ..., not_taken: _Optional[str] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("terminal_id", "sandbox_id", "profile", "namespaces", "host_uid", "host_gid", "uid", "gid", "no_new_privs", "capabilities", "seccomp_mode", "seccomp_filters", "landlock_abi", "network", "limits", "cgroup", "shortfalls", "survivors", "network_exposure", "gate", "roots", "read_only_roots", "repository", "pty", "kept_caches", "covered")
    class CapabilitiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_ID_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    HOST_UID_FIELD_NUMBER: _ClassVar[int]
    HOST_GID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    NO_NEW_PRIVS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    SECCOMP_MODE_FIELD_NUMBER: _ClassVar[int]
    SECCOMP_FILTERS_FIELD_NUMBER: _ClassVar[int]
    LANDLOCK_ABI_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CGROUP_FIELD_NUMBER: _ClassVar[int]
    SHORTFALLS_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_EXPOSURE_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_ROOTS_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    PTY_FIELD_NUMBER: _ClassVar[int]
    KEPT_CACHES_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    sandbox_id: str
    profile: str
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    host_uid: int
    host_gid: int
    uid: int
    gid: int
    no_new_privs: bool
    capabilities: _containers.ScalarMap[str, str]
    seccomp_mode: int
    seccomp_filters: int
    landlock_abi: int
    network: Network
    limits: _containers.ScalarMap[str, str]
    cgroup: str
    shortfalls: _containers.RepeatedScalarFieldContainer[str]
    survivors: int
    network_exposure: _containers.RepeatedScalarFieldContainer[str]
    gate: str
    roots: _containers.RepeatedScalarFieldContainer[str]
    read_only_roots: _containers.RepeatedScalarFieldContainer[str]
    repository: Repository
    pty: PtyReceipt
    kept_caches: _containers.RepeatedScalarFieldContainer[str]
    covered: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, terminal_id: _Optional[str] = ..., sandbox_id: _Optional[str] = ..., profile: _Optional[str] = ..., namespaces: _Optional[_Iterable[str]] = ..., host_uid: _Optional[int] = ..., host_gid: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., no_new_privs: _Optional[bool] = ..., capabilities: _Optional[_Mapping[str, str]] = ..., seccomp_mode: _Optional[int] = ..., seccomp_filters: _Optional[int] = ..., landlock_abi: _Optional[int] = ..., network: _Optional[_Union[Network, str]] = ..., limits: _Optional[_Mapping[str, str]] = ..., cgroup: _Optional[str] = ..., shortfalls: _Optional[_Iterable[str]] = ..., survivors: _Optional[int] = ..., network_exposure: _Optional[_Iterable[str]] = ..., gate: _Optional[str] = ..., roots: _Optional[_Iterable[str]] = ..., read_only_roots: _Optional[_Iterable[str]] = ..., repository: _Optional[_Union[Repository, _Mapping]] = ..., pty: _Optional[_Union[PtyReceipt, _Mapping]] = ..., kept_caches: _Optional[_Iterable[str]] = ..., covered: _Optional[_Iterable[str]] = ...) -> None: ...

class PtyReceipt(_message.Message):
    __slots__ = ("columns", "rows")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...
