import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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

class Job(_message.Message):
    __slots__ = ("variables", "build_dir")
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    BUILD_DIR_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    build_dir: str
    def __init__(self, variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., build_dir: _Optional[str] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("id", "work_dir", "env", "job", "steps")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    WORK_DIR_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    id: str
    work_dir: str
    env: _containers.ScalarMap[str, str]
    job: Job
    steps: str
    def __init__(self, id: _Optional[str] = ..., work_dir: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., job: _Optional[_Union[Job, _Mapping]] = ..., steps: _Optional[str] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FollowLogsRequest(_message.Message):
    __slots__ = ("id", "offset")
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    id: str
    offset: int
    def __init__(self, id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class FollowLogsResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Status]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Status, _Mapping]]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("id", "message", "status", "start_time", "end_time")
    ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    message: str
    status: StepResult.Status
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., message: _Optional[str] = ..., status: _Optional[_Union[StepResult.Status, str]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("status", "outputs", "exports", "env", "sub_step_results")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        unspecified: _ClassVar[StepResult.Status]
        running: _ClassVar[StepResult.Status]
        success: _ClassVar[StepResult.Status]
        failure: _ClassVar[StepResult.Status]
        cancelled: _ClassVar[StepResult.Status]
    unspecified: StepResult.Status
    running: StepResult.Status
    success: StepResult.Status
    failure: StepResult.Status
    cancelled: StepResult.Status
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...
    class ExportsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    SUB_STEP_RESULTS_FIELD_NUMBER: _ClassVar[int]
    status: StepResult.Status
    outputs: _containers.MessageMap[str, _struct_pb2.Value]
    exports: _containers.ScalarMap[str, str]
    env: _containers.ScalarMap[str, str]
    sub_step_results: _containers.RepeatedCompositeFieldContainer[StepResult]
    def __init__(self, status: _Optional[_Union[StepResult.Status, str]] = ..., outputs: _Optional[_Mapping[str, _struct_pb2.Value]] = ..., exports: _Optional[_Mapping[str, str]] = ..., env: _Optional[_Mapping[str, str]] = ..., sub_step_results: _Optional[_Iterable[_Union[StepResult, _Mapping]]] = ...) -> None: ...
