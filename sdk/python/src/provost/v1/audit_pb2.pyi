import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from provost.v1 import policies_pb2 as _policies_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuditIntegrity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIT_INTEGRITY_UNSPECIFIED: _ClassVar[AuditIntegrity]
    AUDIT_INTEGRITY_INTACT: _ClassVar[AuditIntegrity]
    AUDIT_INTEGRITY_TORN: _ClassVar[AuditIntegrity]
    AUDIT_INTEGRITY_BROKEN: _ClassVar[AuditIntegrity]

class AuditFaultKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIT_FAULT_KIND_UNSPECIFIED: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_CHANGED: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_REMOVED: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_REORDERED: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_INSERTED: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_TRUNCATED: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_MISSING_FILE: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_HEAD: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_BAD_SIGNATURE: _ClassVar[AuditFaultKind]
    AUDIT_FAULT_KIND_UNSIGNED: _ClassVar[AuditFaultKind]
AUDIT_INTEGRITY_UNSPECIFIED: AuditIntegrity
AUDIT_INTEGRITY_INTACT: AuditIntegrity
AUDIT_INTEGRITY_TORN: AuditIntegrity
AUDIT_INTEGRITY_BROKEN: AuditIntegrity
AUDIT_FAULT_KIND_UNSPECIFIED: AuditFaultKind
AUDIT_FAULT_KIND_CHANGED: AuditFaultKind
AUDIT_FAULT_KIND_REMOVED: AuditFaultKind
AUDIT_FAULT_KIND_REORDERED: AuditFaultKind
AUDIT_FAULT_KIND_INSERTED: AuditFaultKind
AUDIT_FAULT_KIND_TRUNCATED: AuditFaultKind
AUDIT_FAULT_KIND_MISSING_FILE: AuditFaultKind
AUDIT_FAULT_KIND_HEAD: AuditFaultKind
AUDIT_FAULT_KIND_BAD_SIGNATURE: AuditFaultKind
AUDIT_FAULT_KIND_UNSIGNED: AuditFaultKind

class AuditFilter(_message.Message):
    __slots__ = ("session_id", "terminal_id", "rule", "decision", "since", "principal", "front_end")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    FRONT_END_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    terminal_id: str
    rule: str
    decision: _policies_pb2.Decision
    since: _timestamp_pb2.Timestamp
    principal: str
    front_end: str
    def __init__(self, session_id: _Optional[str] = ..., terminal_id: _Optional[str] = ..., rule: _Optional[str] = ..., decision: _Optional[_Union[_policies_pb2.Decision, str]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., principal: _Optional[str] = ..., front_end: _Optional[str] = ...) -> None: ...

class QueryRecordsRequest(_message.Message):
    __slots__ = ("filter", "last")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    filter: AuditFilter
    last: int
    def __init__(self, filter: _Optional[_Union[AuditFilter, _Mapping]] = ..., last: _Optional[int] = ...) -> None: ...

class QueryRecordsResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: AuditRecord
    def __init__(self, record: _Optional[_Union[AuditRecord, _Mapping]] = ...) -> None: ...

class FollowRecordsRequest(_message.Message):
    __slots__ = ("filter", "after_sequence", "last")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    filter: AuditFilter
    after_sequence: int
    last: int
    def __init__(self, filter: _Optional[_Union[AuditFilter, _Mapping]] = ..., after_sequence: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class FollowRecordsResponse(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: AuditRecord
    def __init__(self, record: _Optional[_Union[AuditRecord, _Mapping]] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("sequence", "line")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    line: str
    def __init__(self, sequence: _Optional[int] = ..., line: _Optional[str] = ...) -> None: ...

class VerifyJournalRequest(_message.Message):
    __slots__ = ("public_key_pem",)
    PUBLIC_KEY_PEM_FIELD_NUMBER: _ClassVar[int]
    public_key_pem: str
    def __init__(self, public_key_pem: _Optional[str] = ...) -> None: ...

class VerifyJournalResponse(_message.Message):
    __slots__ = ("integrity", "files", "records", "first_sequence", "last_sequence", "last_hash", "last_signed_sequence", "faults", "faults_omitted")
    INTEGRITY_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_HASH_FIELD_NUMBER: _ClassVar[int]
    LAST_SIGNED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_OMITTED_FIELD_NUMBER: _ClassVar[int]
    integrity: AuditIntegrity
    files: int
    records: int
    first_sequence: int
    last_sequence: int
    last_hash: str
    last_signed_sequence: int
    faults: _containers.RepeatedCompositeFieldContainer[AuditFault]
    faults_omitted: int
    def __init__(self, integrity: _Optional[_Union[AuditIntegrity, str]] = ..., files: _Optional[int] = ..., records: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_hash: _Optional[str] = ..., last_signed_sequence: _Optional[int] = ..., faults: _Optional[_Iterable[_Union[AuditFault, _Mapping]]] = ..., faults_omitted: _Optional[int] = ...) -> None: ...

class AuditFault(_message.Message):
    __slots__ = ("file", "line", "sequence", "kind", "message")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    sequence: int
    kind: AuditFaultKind
    message: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., sequence: _Optional[int] = ..., kind: _Optional[_Union[AuditFaultKind, str]] = ..., message: _Optional[str] = ...) -> None: ...
