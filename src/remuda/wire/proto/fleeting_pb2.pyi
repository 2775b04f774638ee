from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    creating: _ClassVar[State]
    running: _ClassVar[State]
    deleting: _ClassVar[State]
    deleted: _ClassVar[State]
    timeout: _ClassVar[State]
    suspending: _ClassVar[State]
    suspended: _ClassVar[State]
    resuming: _ClassVar[State]
creating: State
running: State
deleting: State
deleted: State
timeout: State
suspending: State
suspended: State
resuming: State

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConnectorConfig(_message.Message):
    __slots__ = ("os", "arch", "protocol", "username", "password", "key", "useStaticCredentials", "keepalive", "timeout", "protocol_port")
    OS_FIELD_NUMBER: _ClassVar[int]
    ARCH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    USESTATICCREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    KEEPALIVE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_PORT_FIELD_NUMBER: _ClassVar[int]
    os: str
    arch: str
    protocol: str
    username: str
    password: str
    key: bytes
    useStaticCredentials: bool
    keepalive: int
    timeout: int
    protocol_port: int
    def __init__(self, os: _Optional[str] = ..., arch: _Optional[str] = ..., protocol: _Optional[str] = ..., username: _Optional[str] = ..., password: _Optional[str] = ..., key: _Optional[bytes] = ..., useStaticCredentials: _Optional[bool] = ..., keepalive: _Optional[int] = ..., timeout: _Optional[int] = ..., protocol_port: _Optional[int] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("connector_config", "remuda_owner")
    CONNECTOR_CONFIG_FIELD_NUMBER: _ClassVar[int]
    REMUDA_OWNER_FIELD_NUMBER: _ClassVar[int]
    connector_config: ConnectorConfig
    remuda_owner: str
    def __init__(self, connector_config: _Optional[_Union[ConnectorConfig, _Mapping]] = ..., remuda_owner: _Optional[str] = ...) -> None: ...

class InitRequest(_message.Message):
    __slots__ = ("config", "settings")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    config: bytes
    settings: Settings
    def __init__(self, config: _Optional[bytes] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ...) -> None: ...

class InitResponse(_message.Message):
    __slots__ = ("id", "max_size", "version", "build_info", "capabilities")
    ID_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUILD_INFO_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    id: str
    max_size: int
    version: str
    build_info: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., max_size: _Optional[int] = ..., version: _Optional[str] = ..., build_info: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateResponse(_message.Message):
    __slots__ = ("instance", "state")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    state: State
    def __init__(self, instance: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ...) -> None: ...

class IncreaseRequest(_message.Message):
    __slots__ = ("n",)
    N_FIELD_NUMBER: _ClassVar[int]
    n: int
    def __init__(self, n: _Optional[int] = ...) -> None: ...

class IncreaseResponse(_message.Message):
    __slots__ = ("succeeded",)
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    succeeded: int
    def __init__(self, succeeded: _Optional[int] = ...) -> None: ...

class DecreaseRequest(_message.Message):
    __slots__ = ("instances",)
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, instances: _Optional[_Iterable[str]] = ...) -> None: ...

class DecreaseResponse(_message.Message):
    __slots__ = ("succeeded",)
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    succeeded: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, succeeded: _Optional[_Iterable[str]] = ...) -> None: ...

class ConnectInfoRequest(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    def __init__(self, instance: _Optional[str] = ...) -> None: ...

class ConnectInfoResponse(_message.Message):
    __slots__ = ("connector", "ExternalAddr", "InternalAddr", "expires")
    CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    EXTERNALADDR_FIELD_NUMBER: _ClassVar[int]
    INTERNALADDR_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    connector: ConnectorConfig
    ExternalAddr: str
    InternalAddr: str
    expires: int
    def __init__(self, connector: _Optional[_Union[ConnectorConfig, _Mapping]] = ..., ExternalAddr: _Optional[str] = ..., InternalAddr: _Optional[str] = ..., expires: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("instance",)
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    def __init__(self, instance: _Optional[str] = ...) -> None: ...

class SuspendRequest(_message.Message):
    __slots__ = ("instances",)
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, instances: _Optional[_Iterable[str]] = ...) -> None: ...

class SuspendResponse(_message.Message):
    __slots__ = ("succeeded",)
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    succeeded: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, succeeded: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("instances",)
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, instances: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("succeeded",)
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    succeeded: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, succeeded: _Optional[_Iterable[str]] = ...) -> None: ...
