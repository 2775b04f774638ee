from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatsResponse(_message.Message):
    __slots__ = ("quota", "hourly_price")
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    HOURLY_PRICE_FIELD_NUMBER: _ClassVar[int]
    quota: int
    hourly_price: float
    def __init__(self, quota: _Optional[int] = ..., hourly_price: _Optional[float] = ...) -> None: ...

class TaggedInstance(_message.Message):
    __slots__ = ("instance", "owner", "created_at")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    instance: str
    owner: str
    created_at: int
    def __init__(self, instance: _Optional[str] = ..., owner: _Optional[str] = ..., created_at: _Optional[int] = ...) -> None: ...

class StatusDetails(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...
