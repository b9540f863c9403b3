import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from provost.v1 import outcome_pb2 as _outcome_pb2
from provost.v1 import sessions_pb2 as _sessions_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OutputMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_MODE_UNSPECIFIED: _ClassVar[OutputMode]
    OUTPUT_MODE_MERGED: _ClassVar[OutputMode]
    OUTPUT_MODE_SPLIT: _ClassVar[OutputMode]

class StdinMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STDIN_MODE_UNSPECIFIED: _ClassVar[StdinMode]
    STDIN_MODE_CLOSED: _ClassVar[StdinMode]
    STDIN_MODE_OPEN: _ClassVar[StdinMode]

class Overflow(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERFLOW_UNSPECIFIED: _ClassVar[Overflow]
    OVERFLOW_DROP_OLDEST: _ClassVar[Overflow]
    OVERFLOW_BLOCK: _ClassVar[Overflow]

class OutputStream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_STREAM_UNSPECIFIED: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDOUT: _ClassVar[OutputStream]
    OUTPUT_STREAM_STDERR: _ClassVar[OutputStream]

class OnAsk(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_ASK_UNSPECIFIED: _ClassVar[OnAsk]
    ON_ASK_WAIT: _ClassVar[OnAsk]
    ON_ASK_REFUSE: _ClassVar[OnAsk]

class TerminalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TERMINAL_STATE_UNSPECIFIED: _ClassVar[TerminalState]
    TERMINAL_STATE_CREATED: _ClassVar[TerminalState]
    TERMINAL_STATE_RUNNING: _ClassVar[TerminalState]
    TERMINAL_STATE_FINISHED: _ClassVar[TerminalState]
    TERMINAL_STATE_RELEASED: _ClassVar[TerminalState]

class WhenBusy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WHEN_BUSY_UNSPECIFIED: _ClassVar[WhenBusy]
    WHEN_BUSY_REFUSE: _ClassVar[WhenBusy]
    WHEN_BUSY_QUEUE: _ClassVar[WhenBusy]

class LineEnding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINE_ENDING_UNSPECIFIED: _ClassVar[LineEnding]
    LINE_ENDING_CONFIRMED: _ClassVar[LineEnding]
    LINE_ENDING_QUIET: _ClassVar[LineEnding]
    LINE_ENDING_SHELL_ENDED: _ClassVar[LineEnding]

class LineDoubt(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINE_DOUBT_UNSPECIFIED: _ClassVar[LineDoubt]
    LINE_DOUBT_MARKS_MISSING: _ClassVar[LineDoubt]
    LINE_DOUBT_MARKS_FALSE: _ClassVar[LineDoubt]
    LINE_DOUBT_SHELL_REPLACED: _ClassVar[LineDoubt]
    LINE_DOUBT_FULL_SCREEN: _ClassVar[LineDoubt]
    LINE_DOUBT_OUTPUT_LOST: _ClassVar[LineDoubt]

class ShellActivity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHELL_ACTIVITY_UNSPECIFIED: _ClassVar[ShellActivity]
    SHELL_ACTIVITY_IDLE: _ClassVar[ShellActivity]
    SHELL_ACTIVITY_BUSY: _ClassVar[ShellActivity]
    SHELL_ACTIVITY_WAITING_FOR_INPUT: _ClassVar[ShellActivity]
    SHELL_ACTIVITY_ENDED: _ClassVar[ShellActivity]

class SpawnError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPAWN_ERROR_UNSPECIFIED: _ClassVar[SpawnError]
    SPAWN_ERROR_COMMAND_NOT_FOUND: _ClassVar[SpawnError]
    SPAWN_ERROR_NOT_EXECUTABLE: _ClassVar[SpawnError]
    SPAWN_ERROR_PERMISSION_DENIED: _ClassVar[SpawnError]
    SPAWN_ERROR_BAD_INTERPRETER: _ClassVar[SpawnError]
    SPAWN_ERROR_CWD_GONE: _ClassVar[SpawnError]
    SPAWN_ERROR_CWD_NOT_A_DIRECTORY: _ClassVar[SpawnError]
    SPAWN_ERROR_ARGUMENT_LIST_TOO_LONG: _ClassVar[SpawnError]
    SPAWN_ERROR_LIMIT_REACHED: _ClassVar[SpawnError]
    SPAWN_ERROR_CONFINEMENT_UNAVAILABLE: _ClassVar[SpawnError]
    SPAWN_ERROR_SANDBOX_LOST: _ClassVar[SpawnError]
    SPAWN_ERROR_PROGRAM_CHANGED: _ClassVar[SpawnError]
    SPAWN_ERROR_SECRET_UNAVAILABLE: _ClassVar[SpawnError]
    SPAWN_ERROR_STATE_UNWRITABLE: _ClassVar[SpawnError]
OUTPUT_MODE_UNSPECIFIED: OutputMode
OUTPUT_MODE_MERGED: OutputMode
OUTPUT_MODE_SPLIT: OutputMode
STDIN_MODE_UNSPECIFIED: StdinMode
STDIN_MODE_CLOSED: StdinMode
STDIN_MODE_OPEN: StdinMode
OVERFLOW_UNSPECIFIED: Overflow
OVERFLOW_DROP_OLDEST: Overflow
OVERFLOW_BLOCK: Overflow
OUTPUT_STREAM_UNSPECIFIED: OutputStream
OUTPUT_STREAM_STDOUT: OutputStream
OUTPUT_STREAM_STDERR: OutputStream
ON_ASK_UNSPECIFIED: OnAsk
ON_ASK_WAIT: OnAsk
ON_ASK_REFUSE: OnAsk
TERMINAL_STATE_UNSPECIFIED: TerminalState
TERMINAL_STATE_CREATED: TerminalState
TERMINAL_STATE_RUNNING: TerminalState
TERMINAL_STATE_FINISHED: TerminalState
TERMINAL_STATE_RELEASED: TerminalState
WHEN_BUSY_UNSPECIFIED: WhenBusy
WHEN_BUSY_REFUSE: WhenBusy
WHEN_BUSY_QUEUE: WhenBusy
LINE_ENDING_UNSPECIFIED: LineEnding
LINE_ENDING_CONFIRMED: LineEnding
LINE_ENDING_QUIET: LineEnding
LINE_ENDING_SHELL_ENDED: LineEnding
LINE_DOUBT_UNSPECIFIED: LineDoubt
LINE_DOUBT_MARKS_MISSING: LineDoubt
LINE_DOUBT_MARKS_FALSE: LineDoubt
LINE_DOUBT_SHELL_REPLACED: LineDoubt
LINE_DOUBT_FULL_SCREEN: LineDoubt
LINE_DOUBT_OUTPUT_LOST: LineDoubt
SHELL_ACTIVITY_UNSPECIFIED: ShellActivity
SHELL_ACTIVITY_IDLE: ShellActivity
SHELL_ACTIVITY_BUSY: ShellActivity
SHELL_ACTIVITY_WAITING_FOR_INPUT: ShellActivity
SHELL_ACTIVITY_ENDED: ShellActivity
SPAWN_ERROR_UNSPECIFIED: SpawnError
SPAWN_ERROR_COMMAND_NOT_FOUND: SpawnError
SPAWN_ERROR_NOT_EXECUTABLE: SpawnError
SPAWN_ERROR_PERMISSION_DENIED: SpawnError
SPAWN_ERROR_BAD_INTERPRETER: SpawnError
SPAWN_ERROR_CWD_GONE: SpawnError
SPAWN_ERROR_CWD_NOT_A_DIRECTORY: SpawnError
SPAWN_ERROR_ARGUMENT_LIST_TOO_LONG: SpawnError
SPAWN_ERROR_LIMIT_REACHED: SpawnError
SPAWN_ERROR_CONFINEMENT_UNAVAILABLE: SpawnError
SPAWN_ERROR_SANDBOX_LOST: SpawnError
SPAWN_ERROR_PROGRAM_CHANGED: SpawnError
SPAWN_ERROR_SECRET_UNAVAILABLE: SpawnError
SPAWN_ERROR_STATE_UNWRITABLE: SpawnError

class Pty(_message.Message):
    __slots__ = ("columns", "rows", "term")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    term: str
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ..., term: _Optional[str] = ...) -> None: ...

class CreateTerminalRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "program", "shell_line", "program_bytes", "shell_line_bytes", "args", "env", "cwd", "output_byte_limit", "profile", "network", "output_mode", "stdin_mode", "overflow", "time_limit", "idle_limit", "kill_grace", "labels", "on_ask", "pty", "session_name", "kept_shell", "stop_when_left", "umask", "args_bytes", "cwd_bytes", "stdin_given", "search_path", "virtual_env")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SHELL_LINE_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHELL_LINE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MODE_FIELD_NUMBER: _ClassVar[int]
    STDIN_MODE_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    IDLE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    KILL_GRACE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ON_ASK_FIELD_NUMBER: _ClassVar[int]
    PTY_FIELD_NUMBER: _ClassVar[int]
    SESSION_NAME_FIELD_NUMBER: _ClassVar[int]
    KEPT_SHELL_FIELD_NUMBER: _ClassVar[int]
    STOP_WHEN_LEFT_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    ARGS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CWD_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDIN_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SEARCH_PATH_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_ENV_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    program: str
    shell_line: str
    program_bytes: bytes
    shell_line_bytes: bytes
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedCompositeFieldContainer[_sessions_pb2.EnvVar]
    cwd: str
    output_byte_limit: int
    profile: str
    network: _outcome_pb2.Network
    output_mode: OutputMode
    stdin_mode: StdinMode
    overflow: Overflow
    time_limit: _duration_pb2.Duration
    idle_limit: _duration_pb2.Duration
    kill_grace: _duration_pb2.Duration
    labels: _containers.ScalarMap[str, str]
    on_ask: OnAsk
    pty: Pty
    session_name: str
    kept_shell: KeptShell
    stop_when_left: bool
    umask: int
    args_bytes: _containers.RepeatedScalarFieldContainer[bytes]
    cwd_bytes: bytes
    stdin_given: bool
    search_path: _containers.RepeatedScalarFieldContainer[bytes]
    virtual_env: bytes
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., program: _Optional[str] = ..., shell_line: _Optional[str] = ..., program_bytes: _Optional[bytes] = ..., shell_line_bytes: _Optional[bytes] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Iterable[_Union[_sessions_pb2.EnvVar, _Mapping]]] = ..., cwd: _Optional[str] = ..., output_byte_limit: _Optional[int] = ..., profile: _Optional[str] = ..., network: _Optional[_Union[_outcome_pb2.Network, str]] = ..., output_mode: _Optional[_Union[OutputMode, str]] = ..., stdin_mode: _Optional[_Union[StdinMode, str]] = ..., overflow: _Optional[_Union[Overflow, str]] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., idle_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., kill_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., on_ask: _Optional[_Union[OnAsk, str]] = ..., pty: _Optional[_Union[Pty, _Mapping]] = ..., session_name: _Optional[str] = ..., kept_shell: _Optional[_Union[KeptShell, _Mapping]] = ..., stop_when_left: _Optional[bool] = ..., umask: _Optional[int] = ..., args_bytes: _Optional[_Iterable[bytes]] = ..., cwd_bytes: _Optional[bytes] = ..., stdin_given: _Optional[bool] = ..., search_path: _Optional[_Iterable[bytes]] = ..., virtual_env: _Optional[bytes] = ...) -> None: ...

class KeptShell(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateTerminalResponse(_message.Message):
    __slots__ = ("terminal",)
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    terminal: Terminal
    def __init__(self, terminal: _Optional[_Union[Terminal, _Mapping]] = ...) -> None: ...

class Terminal(_message.Message):
    __slots__ = ("id", "session_id", "state", "command", "args", "cwd", "profile", "labels", "created_at", "started_at", "outcome", "receipt", "output", "pid", "output_byte_limit", "output_lost", "pty", "kept_shell", "stdin_given")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LOST_FIELD_NUMBER: _ClassVar[int]
    PTY_FIELD_NUMBER: _ClassVar[int]
    KEPT_SHELL_FIELD_NUMBER: _ClassVar[int]
    STDIN_GIVEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    session_id: str
    state: TerminalState
    command: str
    args: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    profile: str
    labels: _containers.ScalarMap[str, str]
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    outcome: _outcome_pb2.Outcome
    receipt: _outcome_pb2.Receipt
    output: _containers.RepeatedCompositeFieldContainer[OutputPosition]
    pid: int
    output_byte_limit: int
    output_lost: bool
    pty: Pty
    kept_shell: KeptShell
    stdin_given: bool
    def __init__(self, id: _Optional[str] = ..., session_id: _Optional[str] = ..., state: _Optional[_Union[TerminalState, str]] = ..., command: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., profile: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., outcome: _Optional[_Union[_outcome_pb2.Outcome, _Mapping]] = ..., receipt: _Optional[_Union[_outcome_pb2.Receipt, _Mapping]] = ..., output: _Optional[_Iterable[_Union[OutputPosition, _Mapping]]] = ..., pid: _Optional[int] = ..., output_byte_limit: _Optional[int] = ..., output_lost: _Optional[bool] = ..., pty: _Optional[_Union[Pty, _Mapping]] = ..., kept_shell: _Optional[_Union[KeptShell, _Mapping]] = ..., stdin_given: _Optional[bool] = ...) -> None: ...

class OutputPosition(_message.Message):
    __slots__ = ("stream", "oldest_offset", "next_offset")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OLDEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream: OutputStream
    oldest_offset: int
    next_offset: int
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., oldest_offset: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class GetTerminalRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class GetTerminalResponse(_message.Message):
    __slots__ = ("terminal",)
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    terminal: Terminal
    def __init__(self, terminal: _Optional[_Union[Terminal, _Mapping]] = ...) -> None: ...

class ListTerminalsRequest(_message.Message):
    __slots__ = ("session_id", "page_size", "page_token")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    page_size: int
    page_token: str
    def __init__(self, session_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTerminalsResponse(_message.Message):
    __slots__ = ("terminals", "next_page_token")
    TERMINALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    terminals: _containers.RepeatedCompositeFieldContainer[Terminal]
    next_page_token: str
    def __init__(self, terminals: _Optional[_Iterable[_Union[Terminal, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchTerminalsRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class WatchTerminalsResponse(_message.Message):
    __slots__ = ("terminal",)
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    terminal: Terminal
    def __init__(self, terminal: _Optional[_Union[Terminal, _Mapping]] = ...) -> None: ...

class GetOutputRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "stream", "as_text")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    AS_TEXT_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    stream: OutputStream
    as_text: bool
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., stream: _Optional[_Union[OutputStream, str]] = ..., as_text: _Optional[bool] = ...) -> None: ...

class GetOutputResponse(_message.Message):
    __slots__ = ("data", "text", "start_offset", "next_offset", "truncated", "state", "outcome", "output_lost")
    DATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LOST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    text: str
    start_offset: int
    next_offset: int
    truncated: bool
    state: TerminalState
    outcome: _outcome_pb2.Outcome
    output_lost: bool
    def __init__(self, data: _Optional[bytes] = ..., text: _Optional[str] = ..., start_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., truncated: _Optional[bool] = ..., state: _Optional[_Union[TerminalState, str]] = ..., outcome: _Optional[_Union[_outcome_pb2.Outcome, _Mapping]] = ..., output_lost: _Optional[bool] = ...) -> None: ...

class StreamOutputRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "stream", "offset", "follow")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    stream: OutputStream
    offset: int
    follow: bool
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., stream: _Optional[_Union[OutputStream, str]] = ..., offset: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class StreamOutputResponse(_message.Message):
    __slots__ = ("chunk", "gap", "end")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    chunk: OutputChunk
    gap: OutputGap
    end: OutputEnd
    def __init__(self, chunk: _Optional[_Union[OutputChunk, _Mapping]] = ..., gap: _Optional[_Union[OutputGap, _Mapping]] = ..., end: _Optional[_Union[OutputEnd, _Mapping]] = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ("stream", "offset", "data")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    stream: OutputStream
    offset: int
    data: bytes
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class OutputGap(_message.Message):
    __slots__ = ("stream", "from_offset", "to_offset")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream: OutputStream
    from_offset: int
    to_offset: int
    def __init__(self, stream: _Optional[_Union[OutputStream, str]] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ...) -> None: ...

class OutputEnd(_message.Message):
    __slots__ = ("next_offset", "state", "outcome", "output_lost")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_LOST_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    state: TerminalState
    outcome: _outcome_pb2.Outcome
    output_lost: bool
    def __init__(self, next_offset: _Optional[int] = ..., state: _Optional[_Union[TerminalState, str]] = ..., outcome: _Optional[_Union[_outcome_pb2.Outcome, _Mapping]] = ..., output_lost: _Optional[bool] = ...) -> None: ...

class WaitForExitRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class WaitForExitResponse(_message.Message):
    __slots__ = ("state", "outcome")
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    state: TerminalState
    outcome: _outcome_pb2.Outcome
    def __init__(self, state: _Optional[_Union[TerminalState, str]] = ..., outcome: _Optional[_Union[_outcome_pb2.Outcome, _Mapping]] = ...) -> None: ...

class SignalTerminalRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "signal")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    signal: str
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., signal: _Optional[str] = ...) -> None: ...

class SignalTerminalResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KillTerminalRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "grace")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    grace: _duration_pb2.Duration
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class KillTerminalResponse(_message.Message):
    __slots__ = ("terminal",)
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    terminal: Terminal
    def __init__(self, terminal: _Optional[_Union[Terminal, _Mapping]] = ...) -> None: ...

class ReleaseTerminalRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "grace")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    grace: _duration_pb2.Duration
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReleaseTerminalResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WriteInputRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "data", "eof", "offset")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    data: bytes
    eof: bool
    offset: int
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., data: _Optional[bytes] = ..., eof: _Optional[bool] = ..., offset: _Optional[int] = ...) -> None: ...

class WriteInputResponse(_message.Message):
    __slots__ = ("written_bytes",)
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    written_bytes: int
    def __init__(self, written_bytes: _Optional[int] = ...) -> None: ...

class ResizeTerminalRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "columns", "rows")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    columns: int
    rows: int
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., columns: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ResizeTerminalResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("start", "input", "resize", "end_of_input")
    START_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    END_OF_INPUT_FIELD_NUMBER: _ClassVar[int]
    start: AttachStart
    input: bytes
    resize: Pty
    end_of_input: EndOfInput
    def __init__(self, start: _Optional[_Union[AttachStart, _Mapping]] = ..., input: _Optional[bytes] = ..., resize: _Optional[_Union[Pty, _Mapping]] = ..., end_of_input: _Optional[_Union[EndOfInput, _Mapping]] = ...) -> None: ...

class AttachStart(_message.Message):
    __slots__ = ("terminal_id", "session_id", "offset", "tail_bytes", "size", "restore_screen")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_SCREEN_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    offset: int
    tail_bytes: int
    size: Pty
    restore_screen: bool
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., offset: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., size: _Optional[_Union[Pty, _Mapping]] = ..., restore_screen: _Optional[bool] = ...) -> None: ...

class EndOfInput(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("attached", "chunk", "gap", "end", "restored")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    attached: Terminal
    chunk: OutputChunk
    gap: OutputGap
    end: OutputEnd
    restored: RestoredScreen
    def __init__(self, attached: _Optional[_Union[Terminal, _Mapping]] = ..., chunk: _Optional[_Union[OutputChunk, _Mapping]] = ..., gap: _Optional[_Union[OutputGap, _Mapping]] = ..., end: _Optional[_Union[OutputEnd, _Mapping]] = ..., restored: _Optional[_Union[RestoredScreen, _Mapping]] = ...) -> None: ...

class RestoredScreen(_message.Message):
    __slots__ = ("data", "offset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    def __init__(self, data: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("create", "resumable")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    create: CreateTerminalRequest
    resumable: bool
    def __init__(self, create: _Optional[_Union[CreateTerminalRequest, _Mapping]] = ..., resumable: _Optional[bool] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("started", "chunk", "finished")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    started: Terminal
    chunk: OutputChunk
    finished: Terminal
    def __init__(self, started: _Optional[_Union[Terminal, _Mapping]] = ..., chunk: _Optional[_Union[OutputChunk, _Mapping]] = ..., finished: _Optional[_Union[Terminal, _Mapping]] = ...) -> None: ...

class ResumeRunRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "stdout_offset", "stderr_offset")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STDOUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STDERR_OFFSET_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    stdout_offset: int
    stderr_offset: int
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., stdout_offset: _Optional[int] = ..., stderr_offset: _Optional[int] = ...) -> None: ...

class ResumeRunResponse(_message.Message):
    __slots__ = ("resumed", "chunk", "finished")
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    resumed: Terminal
    chunk: OutputChunk
    finished: Terminal
    def __init__(self, resumed: _Optional[_Union[Terminal, _Mapping]] = ..., chunk: _Optional[_Union[OutputChunk, _Mapping]] = ..., finished: _Optional[_Union[Terminal, _Mapping]] = ...) -> None: ...

class RunLineRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "line", "when_busy", "on_ask", "quiet_limit")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    WHEN_BUSY_FIELD_NUMBER: _ClassVar[int]
    ON_ASK_FIELD_NUMBER: _ClassVar[int]
    QUIET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    line: str
    when_busy: WhenBusy
    on_ask: OnAsk
    quiet_limit: _duration_pb2.Duration
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., line: _Optional[str] = ..., when_busy: _Optional[_Union[WhenBusy, str]] = ..., on_ask: _Optional[_Union[OnAsk, str]] = ..., quiet_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RunLineResponse(_message.Message):
    __slots__ = ("started", "chunk", "gap", "waits", "end")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    started: LineStarted
    chunk: OutputChunk
    gap: OutputGap
    waits: LineWaits
    end: LineEnd
    def __init__(self, started: _Optional[_Union[LineStarted, _Mapping]] = ..., chunk: _Optional[_Union[OutputChunk, _Mapping]] = ..., gap: _Optional[_Union[OutputGap, _Mapping]] = ..., waits: _Optional[_Union[LineWaits, _Mapping]] = ..., end: _Optional[_Union[LineEnd, _Mapping]] = ...) -> None: ...

class LineStarted(_message.Message):
    __slots__ = ("line_id", "start_offset")
    LINE_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    line_id: str
    start_offset: int
    def __init__(self, line_id: _Optional[str] = ..., start_offset: _Optional[int] = ...) -> None: ...

class LineWaits(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LineEnd(_message.Message):
    __slots__ = ("ending", "exit_status", "start_offset", "end_offset", "doubts", "cwd", "outcome")
    ENDING_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ending: LineEnding
    exit_status: int
    start_offset: int
    end_offset: int
    doubts: _containers.RepeatedScalarFieldContainer[LineDoubt]
    cwd: str
    outcome: _outcome_pb2.Outcome
    def __init__(self, ending: _Optional[_Union[LineEnding, str]] = ..., exit_status: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., doubts: _Optional[_Iterable[_Union[LineDoubt, str]]] = ..., cwd: _Optional[str] = ..., outcome: _Optional[_Union[_outcome_pb2.Outcome, _Mapping]] = ...) -> None: ...

class WriteLineInputRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id", "line_id", "data", "eof")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LINE_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    line_id: str
    data: bytes
    eof: bool
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., line_id: _Optional[str] = ..., data: _Optional[bytes] = ..., eof: _Optional[bool] = ...) -> None: ...

class WriteLineInputResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InterruptLineRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class InterruptLineResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetShellRequest(_message.Message):
    __slots__ = ("terminal_id", "session_id")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class GetShellResponse(_message.Message):
    __slots__ = ("activity", "cwd", "line_id", "queued_lines")
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    LINE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUED_LINES_FIELD_NUMBER: _ClassVar[int]
    activity: ShellActivity
    cwd: str
    line_id: str
    queued_lines: int
    def __init__(self, activity: _Optional[_Union[ShellActivity, str]] = ..., cwd: _Optional[str] = ..., line_id: _Optional[str] = ..., queued_lines: _Optional[int] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("start", "data", "end_of_input")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_OF_INPUT_FIELD_NUMBER: _ClassVar[int]
    start: ForwardStart
    data: bytes
    end_of_input: ForwardEndOfInput
    def __init__(self, start: _Optional[_Union[ForwardStart, _Mapping]] = ..., data: _Optional[bytes] = ..., end_of_input: _Optional[_Union[ForwardEndOfInput, _Mapping]] = ...) -> None: ...

class ForwardStart(_message.Message):
    __slots__ = ("terminal_id", "session_id", "port")
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    terminal_id: str
    session_id: str
    port: int
    def __init__(self, terminal_id: _Optional[str] = ..., session_id: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ForwardEndOfInput(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForwardResponse(_message.Message):
    __slots__ = ("connected", "data")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    connected: ForwardConnected
    data: bytes
    def __init__(self, connected: _Optional[_Union[ForwardConnected, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ForwardConnected(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
