import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from provost.v1 import outcome_pb2 as _outcome_pb2
from provost.v1 import terminals_pb2 as _terminals_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECISION_UNSPECIFIED: _ClassVar[Decision]
    DECISION_ALLOW: _ClassVar[Decision]
    DECISION_DENY: _ClassVar[Decision]
    DECISION_ASK: _ClassVar[Decision]
DECISION_UNSPECIFIED: Decision
DECISION_ALLOW: Decision
DECISION_DENY: Decision
DECISION_ASK: Decision

class PolicyFile(_message.Message):
    __slots__ = ("name", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class CheckPolicyRequest(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[PolicyFile]
    def __init__(self, files: _Optional[_Iterable[_Union[PolicyFile, _Mapping]]] = ...) -> None: ...

class CheckPolicyResponse(_message.Message):
    __slots__ = ("problem", "digest", "rules", "profiles")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    problem: PolicyProblem
    digest: str
    rules: int
    profiles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problem: _Optional[_Union[PolicyProblem, _Mapping]] = ..., digest: _Optional[str] = ..., rules: _Optional[int] = ..., profiles: _Optional[_Iterable[str]] = ...) -> None: ...

class PolicyProblem(_message.Message):
    __slots__ = ("message", "file", "line", "column", "rendered", "refused_at")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    RENDERED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_AT_FIELD_NUMBER: _ClassVar[int]
    message: str
    file: str
    line: int
    column: int
    rendered: str
    refused_at: _timestamp_pb2.Timestamp
    def __init__(self, message: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., rendered: _Optional[str] = ..., refused_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetPolicyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPolicyResponse(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("generation", "digest", "files", "rules", "profiles", "default_profile", "loaded_at", "load_problem", "loads", "unchanged_loads", "refused_loads")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PROFILE_FIELD_NUMBER: _ClassVar[int]
    LOADED_AT_FIELD_NUMBER: _ClassVar[int]
    LOAD_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_LOADS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_LOADS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    digest: str
    files: _containers.RepeatedScalarFieldContainer[str]
    rules: int
    profiles: _containers.RepeatedScalarFieldContainer[str]
    default_profile: str
    loaded_at: _timestamp_pb2.Timestamp
    load_problem: PolicyProblem
    loads: int
    unchanged_loads: int
    refused_loads: int
    def __init__(self, generation: _Optional[int] = ..., digest: _Optional[str] = ..., files: _Optional[_Iterable[str]] = ..., rules: _Optional[int] = ..., profiles: _Optional[_Iterable[str]] = ..., default_profile: _Optional[str] = ..., loaded_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., load_problem: _Optional[_Union[PolicyProblem, _Mapping]] = ..., loads: _Optional[int] = ..., unchanged_loads: _Optional[int] = ..., refused_loads: _Optional[int] = ...) -> None: ...

class ReloadPolicyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadPolicyResponse(_message.Message):
    __slots__ = ("policy", "changed")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    changed: bool
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ..., changed: _Optional[bool] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("create",)
    CREATE_FIELD_NUMBER: _ClassVar[int]
    create: _terminals_pb2.CreateTerminalRequest
    def __init__(self, create: _Optional[_Union[_terminals_pb2.CreateTerminalRequest, _Mapping]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("decision", "rule", "reason", "generation", "policy_digest", "commands", "observed_rules", "run")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    POLICY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_RULES_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    decision: Decision
    rule: str
    reason: str
    generation: int
    policy_digest: str
    commands: _containers.RepeatedCompositeFieldContainer[ExplainedCommand]
    observed_rules: _containers.RepeatedCompositeFieldContainer[MatchedRule]
    run: ExplainedRun
    def __init__(self, decision: _Optional[_Union[Decision, str]] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ..., generation: _Optional[int] = ..., policy_digest: _Optional[str] = ..., commands: _Optional[_Iterable[_Union[ExplainedCommand, _Mapping]]] = ..., observed_rules: _Optional[_Iterable[_Union[MatchedRule, _Mapping]]] = ..., run: _Optional[_Union[ExplainedRun, _Mapping]] = ...) -> None: ...

class ExplainedCommand(_message.Message):
    __slots__ = ("normal_form", "wrappers", "file", "decision", "reason", "matched_rules")
    NORMAL_FORM_FIELD_NUMBER: _ClassVar[int]
    WRAPPERS_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MATCHED_RULES_FIELD_NUMBER: _ClassVar[int]
    normal_form: str
    wrappers: _containers.RepeatedScalarFieldContainer[str]
    file: str
    decision: Decision
    reason: str
    matched_rules: _containers.RepeatedCompositeFieldContainer[MatchedRule]
    def __init__(self, normal_form: _Optional[str] = ..., wrappers: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ..., decision: _Optional[_Union[Decision, str]] = ..., reason: _Optional[str] = ..., matched_rules: _Optional[_Iterable[_Union[MatchedRule, _Mapping]]] = ...) -> None: ...

class MatchedRule(_message.Message):
    __slots__ = ("rule", "decision", "certain", "location")
    RULE_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    CERTAIN_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    rule: str
    decision: Decision
    certain: bool
    location: str
    def __init__(self, rule: _Optional[str] = ..., decision: _Optional[_Union[Decision, str]] = ..., certain: _Optional[bool] = ..., location: _Optional[str] = ...) -> None: ...

class ExplainedRun(_message.Message):
    __slots__ = ("profile", "argv", "file", "cwd", "network", "env_names", "time_limit", "idle_limit")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    ENV_NAMES_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    IDLE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    profile: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    file: str
    cwd: str
    network: _outcome_pb2.Network
    env_names: _containers.RepeatedScalarFieldContainer[str]
    time_limit: _duration_pb2.Duration
    idle_limit: _duration_pb2.Duration
    def __init__(self, profile: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ..., cwd: _Optional[str] = ..., network: _Optional[_Union[_outcome_pb2.Network, str]] = ..., env_names: _Optional[_Iterable[str]] = ..., time_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., idle_limit: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
