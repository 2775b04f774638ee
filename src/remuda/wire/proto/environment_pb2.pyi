from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenRequest(_message.Message):
    __slots__ = ("version", "config", "folder", "runner")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    version: int
    config: str
    folder: str
    runner: str
    def __init__(self, version: _Optional[int] = ..., config: _Optional[str] = ..., folder: _Optional[str] = ..., runner: _Optional[str] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Standing(_message.Message):
    __slots__ = ("capacity",)
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    capacity: int
    def __init__(self, capacity: _Optional[int] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("key", "runner", "slot", "project", "builds_dir", "cache_dir", "job", "run_as", "before_job", "after_job", "folder")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    BUILDS_DIR_FIELD_NUMBER: _ClassVar[int]
    CACHE_DIR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RUN_AS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_JOB_FIELD_NUMBER: _ClassVar[int]
    AFTER_JOB_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    key: str
    runner: str
    slot: int
    project: str
    builds_dir: str
    cache_dir: str
    job: int
    run_as: str
    before_job: str
    after_job: str
    folder: str
    def __init__(self, key: _Optional[str] = ..., runner: _Optional[str] = ..., slot: _Optional[int] = ..., project: _Optional[str] = ..., builds_dir: _Optional[str] = ..., cache_dir: _Optional[str] = ..., job: _Optional[int] = ..., run_as: _Optional[str] = ..., before_job: _Optional[str] = ..., after_job: _Optional[str] = ..., folder: _Optional[str] = ...) -> None: ...

class AcquireRequest(_message.Message):
    __slots__ = ("place",)
    PLACE_FIELD_NUMBER: _ClassVar[int]
    place: Place
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ...) -> None: ...

class AcquireResponse(_message.Message):
    __slots__ = ("machine",)
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    machine: str
    def __init__(self, machine: _Optional[str] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("place", "machine")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    place: Place
    machine: str
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., machine: _Optional[str] = ...) -> None: ...

class AdoptResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Folders(_message.Message):
    __slots__ = ("work_dir", "builds_dir", "cache_dir")
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    BUILDS_DIR_FIELD_NUMBER: _ClassVar[int]
    CACHE_DIR_FIELD_NUMBER: _ClassVar[int]
    work_dir: str
    builds_dir: str
    cache_dir: str
    def __init__(self, work_dir: _Optional[str] = ..., builds_dir: _Optional[str] = ..., cache_dir: _Optional[str] = ...) -> None: ...

class HookOutput(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class Bytes(_message.Message):
    __slots__ = ("data", "machine")
    DATA_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    machine: str
    def __init__(self, data: _Optional[bytes] = ..., machine: _Optional[str] = ...) -> None: ...

class RecoverRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecoverResponse(_message.Message):
    __slots__ = ("machines",)
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    machines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, machines: _Optional[_Iterable[str]] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageResponse(_message.Message):
    __slots__ = ("disk_free_bytes",)
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    disk_free_bytes: int
    def __init__(self, disk_free_bytes: _Optional[int] = ...) -> None: ...

class CleanUpResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
