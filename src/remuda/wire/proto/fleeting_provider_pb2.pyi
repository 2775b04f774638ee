from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RoomRequest(_message.Message):
    __slots__ = ("wanted", "open_requests", "held", "is_complete")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    OPEN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    wanted: _containers.RepeatedCompositeFieldContainer[Wanted]
    open_requests: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    is_complete: bool
    def __init__(self, wanted: _Optional[_Iterable[_Union[Wanted, _Mapping]]] = ..., open_requests: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., is_complete: _Optional[bool] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("holder", "instance")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    holder: str
    instance: str
    def __init__(self, holder: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("key", "running", "waiting", "ready", "soon")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SOON_FIELD_NUMBER: _ClassVar[int]
    key: str
    running: int
    waiting: int
    ready: int
    soon: int
    def __init__(self, key: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., ready: _Optional[int] = ..., soon: _Optional[int] = ...) -> None: ...

class RoomResponse(_message.Message):
    __slots__ = ("capacity", "explanation")
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    capacity: int
    explanation: str
    def __init__(self, capacity: _Optional[int] = ..., explanation: _Optional[str] = ...) -> None: ...

class AcquireRequest(_message.Message):
    __slots__ = ("holder", "key", "caches")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CACHES_FIELD_NUMBER: _ClassVar[int]
    holder: str
    key: str
    caches: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, holder: _Optional[str] = ..., key: _Optional[str] = ..., caches: _Optional[_Iterable[str]] = ...) -> None: ...

class AcquireResponse(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    def __init__(self, instance: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("holder", "is_used", "warmed")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    IS_USED_FIELD_NUMBER: _ClassVar[int]
    WARMED_FIELD_NUMBER: _ClassVar[int]
    holder: str
    is_used: bool
    warmed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, holder: _Optional[str] = ..., is_used: _Optional[bool] = ..., warmed: _Optional[_Iterable[str]] = ...) -> None: ...
