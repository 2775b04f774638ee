from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HelloResponse(_message.Message):
    __slots__ = ("protocol", "version", "jobs", "pid")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    pid: int
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ..., pid: _Optional[int] = ...) -> None: ...

class Variable(_message.Message):
    __slots__ = ("key", "value", "file", "masked")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    file: bool
    masked: bool
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., file: _Optional[bool] = ..., masked: _Optional[bool] = ...) -> None: ...

class StartRequest(_message.Message):
    __slots__ = ("version", "id", "work_dir", "env", "variables", "steps", "masks", "mask_prefixes", "timeout_seconds", "log_limit_bytes", "banner", "policy", "run_as", "hold_failed_seconds", "hold_note", "owner", "patience_seconds", "log_waiting_limit_bytes", "sandbox", "cgroup", "writable", "cgroup_limits", "own_user", "hidden")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    MASK_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOG_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    BANNER_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    RUN_AS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FAILED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HOLD_NOTE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOG_WAITING_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    CGROUP_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    CGROUP_LIMITS_FIELD_NUMBER: _ClassVar[int]
    OWN_USER_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: str
    work_dir: str
    env: _containers.ScalarMap[str, str]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    steps: str
    masks: _containers.RepeatedScalarFieldContainer[str]
    mask_prefixes: _containers.RepeatedScalarFieldContainer[str]
    timeout_seconds: int
    log_limit_bytes: int
    banner: _containers.RepeatedScalarFieldContainer[str]
    policy: str
    run_as: str
    hold_failed_seconds: int
    hold_note: str
    owner: bytes
    patience_seconds: int
    log_waiting_limit_bytes: int
    sandbox: bool
    cgroup: str
    writable: _containers.RepeatedScalarFieldContainer[str]
    cgroup_limits: GroupLimits
    own_user: bool
    hidden: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., id: _Optional[str] = ..., work_dir: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., steps: _Optional[str] = ..., masks: _Optional[_Iterable[str]] = ..., mask_prefixes: _Optional[_Iterable[str]] = ..., timeout_seconds: _Optional[int] = ..., log_limit_bytes: _Optional[int] = ..., banner: _Optional[_Iterable[str]] = ..., policy: _Optional[str] = ..., run_as: _Optional[str] = ..., hold_failed_seconds: _Optional[int] = ..., hold_note: _Optional[str] = ..., owner: _Optional[bytes] = ..., patience_seconds: _Optional[int] = ..., log_waiting_limit_bytes: _Optional[int] = ..., sandbox: _Optional[bool] = ..., cgroup: _Optional[str] = ..., writable: _Optional[_Iterable[str]] = ..., cgroup_limits: _Optional[_Union[GroupLimits, _Mapping]] = ..., own_user: _Optional[bool] = ..., hidden: _Optional[_Iterable[str]] = ...) -> None: ...

class GroupLimits(_message.Message):
    __slots__ = ("memory_bytes", "cpus", "pids")
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    cpus: float
    pids: int
    def __init__(self, memory_bytes: _Optional[int] = ..., cpus: _Optional[float] = ..., pids: _Optional[int] = ...) -> None: ...

class StartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JobsRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class KeptJob(_message.Message):
    __slots__ = ("id", "owner", "ended", "attended")
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ATTENDED_FIELD_NUMBER: _ClassVar[int]
    id: str
    owner: bytes
    ended: bool
    attended: bool
    def __init__(self, id: _Optional[str] = ..., owner: _Optional[bytes] = ..., ended: _Optional[bool] = ..., attended: _Optional[bool] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("subscribe", "confirm", "unsubscribe")
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    subscribe: Subscribe
    confirm: Confirm
    unsubscribe: Unsubscribe
    def __init__(self, subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., confirm: _Optional[_Union[Confirm, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("id", "log_offset", "result_seq", "batches")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULT_SEQ_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    id: str
    log_offset: int
    result_seq: int
    batches: bool
    def __init__(self, id: _Optional[str] = ..., log_offset: _Optional[int] = ..., result_seq: _Optional[int] = ..., batches: _Optional[bool] = ...) -> None: ...

class Confirm(_message.Message):
    __slots__ = ("id", "log_offset", "result_seq")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULT_SEQ_FIELD_NUMBER: _ClassVar[int]
    id: str
    log_offset: int
    result_seq: int
    def __init__(self, id: _Optional[str] = ..., log_offset: _Optional[int] = ..., result_seq: _Optional[int] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("id", "log", "result", "end", "unknown", "results")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    log: LogChunk
    result: ResultEvent
    end: JobEnd
    unknown: Unknown
    results: ResultBatch
    def __init__(self, id: _Optional[str] = ..., log: _Optional[_Union[LogChunk, _Mapping]] = ..., result: _Optional[_Union[ResultEvent, _Mapping]] = ..., end: _Optional[_Union[JobEnd, _Mapping]] = ..., unknown: _Optional[_Union[Unknown, _Mapping]] = ..., results: _Optional[_Union[ResultBatch, _Mapping]] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("offset", "data", "is_first")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_FIRST_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    is_first: bool
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., is_first: _Optional[bool] = ...) -> None: ...

class ResultEvent(_message.Message):
    __slots__ = ("seq", "json")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    seq: int
    json: bytes
    def __init__(self, seq: _Optional[int] = ..., json: _Optional[bytes] = ...) -> None: ...

class ResultBatch(_message.Message):
    __slots__ = ("seq", "json")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    seq: int
    json: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, seq: _Optional[int] = ..., json: _Optional[_Iterable[bytes]] = ...) -> None: ...

class JobEnd(_message.Message):
    __slots__ = ("status", "reason", "exit_code", "message", "log_bytes", "results", "log_checksum", "held_seconds", "used")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    LOG_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    HELD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    status: str
    reason: str
    exit_code: int
    message: str
    log_bytes: int
    results: int
    log_checksum: str
    held_seconds: int
    used: JobUse
    def __init__(self, status: _Optional[str] = ..., reason: _Optional[str] = ..., exit_code: _Optional[int] = ..., message: _Optional[str] = ..., log_bytes: _Optional[int] = ..., results: _Optional[int] = ..., log_checksum: _Optional[str] = ..., held_seconds: _Optional[int] = ..., used: _Optional[_Union[JobUse, _Mapping]] = ...) -> None: ...

class JobUse(_message.Message):
    __slots__ = ("cpu_user_seconds", "cpu_system_seconds", "memory_peak_bytes", "disk_read_bytes", "disk_written_bytes", "work_dir_bytes", "network_received_bytes", "network_sent_bytes", "source")
    CPU_USER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SYSTEM_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_BYTES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    NETWORK_SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    cpu_user_seconds: float
    cpu_system_seconds: float
    memory_peak_bytes: int
    disk_read_bytes: int
    disk_written_bytes: int
    work_dir_bytes: int
    network_received_bytes: int
    network_sent_bytes: int
    source: str
    def __init__(self, cpu_user_seconds: _Optional[float] = ..., cpu_system_seconds: _Optional[float] = ..., memory_peak_bytes: _Optional[int] = ..., disk_read_bytes: _Optional[int] = ..., disk_written_bytes: _Optional[int] = ..., work_dir_bytes: _Optional[int] = ..., network_received_bytes: _Optional[int] = ..., network_sent_bytes: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

class Unknown(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("protocol", "version", "program", "transport", "system", "machine", "uid", "abilities")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ABILITIES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    program: str
    transport: str
    system: str
    machine: str
    uid: int
    abilities: _containers.RepeatedCompositeFieldContainer[Ability]
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., program: _Optional[str] = ..., transport: _Optional[str] = ..., system: _Optional[str] = ..., machine: _Optional[str] = ..., uid: _Optional[int] = ..., abilities: _Optional[_Iterable[_Union[Ability, _Mapping]]] = ...) -> None: ...

class Ability(_message.Message):
    __slots__ = ("name", "enforced", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    enforced: bool
    detail: str
    def __init__(self, name: _Optional[str] = ..., enforced: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageResponse(_message.Message):
    __slots__ = ("cpu_seconds", "memory_bytes", "open_files", "open_files_limit", "machine", "jobs")
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    cpu_seconds: float
    memory_bytes: int
    open_files: int
    open_files_limit: int
    machine: Machine
    jobs: _containers.RepeatedCompositeFieldContainer[JobUsage]
    def __init__(self, cpu_seconds: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., open_files: _Optional[int] = ..., open_files_limit: _Optional[int] = ..., machine: _Optional[_Union[Machine, _Mapping]] = ..., jobs: _Optional[_Iterable[_Union[JobUsage, _Mapping]]] = ...) -> None: ...

class Machine(_message.Message):
    __slots__ = ("cpus", "load_1m", "memory_bytes", "memory_available_bytes", "disk_bytes", "disk_available_bytes")
    CPUS_FIELD_NUMBER: _ClassVar[int]
    LOAD_1M_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpus: int
    load_1m: float
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int
    def __init__(self, cpus: _Optional[int] = ..., load_1m: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., memory_available_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., disk_available_bytes: _Optional[int] = ...) -> None: ...

class JobUsage(_message.Message):
    __slots__ = ("id", "processes", "cpu_seconds", "memory_bytes", "log_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    processes: int
    cpu_seconds: float
    memory_bytes: int
    log_bytes: int
    def __init__(self, id: _Optional[str] = ..., processes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., log_bytes: _Optional[int] = ...) -> None: ...

class ShellInput(_message.Message):
    __slots__ = ("open", "data", "size", "end")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    open: ShellOpen
    data: bytes
    size: TerminalSize
    end: bool
    def __init__(self, open: _Optional[_Union[ShellOpen, _Mapping]] = ..., data: _Optional[bytes] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ..., end: _Optional[bool] = ...) -> None: ...

class ShellOpen(_message.Message):
    __slots__ = ("id", "command", "terminal", "size", "term")
    ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    id: str
    command: _containers.RepeatedScalarFieldContainer[str]
    terminal: bool
    size: TerminalSize
    term: str
    def __init__(self, id: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., terminal: _Optional[bool] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ..., term: _Optional[str] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("columns", "rows")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ShellOutput(_message.Message):
    __slots__ = ("opened", "data", "errors", "exit_code", "refused")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    opened: bool
    data: bytes
    errors: bytes
    exit_code: int
    refused: str
    def __init__(self, opened: _Optional[bool] = ..., data: _Optional[bytes] = ..., errors: _Optional[bytes] = ..., exit_code: _Optional[int] = ..., refused: _Optional[str] = ...) -> None: ...
