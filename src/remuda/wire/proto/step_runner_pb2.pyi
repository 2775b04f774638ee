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

class StepReferenceProtocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    step_reference_protocol_unspecified: _ClassVar[StepReferenceProtocol]
    local: _ClassVar[StepReferenceProtocol]
    git: _ClassVar[StepReferenceProtocol]
    zip: _ClassVar[StepReferenceProtocol]
    oci: _ClassVar[StepReferenceProtocol]
    dist: _ClassVar[StepReferenceProtocol]
    dynamic: _ClassVar[StepReferenceProtocol]
    spec_def: _ClassVar[StepReferenceProtocol]

class DefinitionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    definition_type_unspecified: _ClassVar[DefinitionType]
    exec: _ClassVar[DefinitionType]
    steps: _ClassVar[DefinitionType]

class OutputMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    output_method_unspecified: _ClassVar[OutputMethod]
    outputs: _ClassVar[OutputMethod]
    delegate: _ClassVar[OutputMethod]

class ValueType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    value_type_unspecified: _ClassVar[ValueType]
    string: _ClassVar[ValueType]
    number: _ClassVar[ValueType]
    boolean: _ClassVar[ValueType]
    struct: _ClassVar[ValueType]
    array: _ClassVar[ValueType]
step_reference_protocol_unspecified: StepReferenceProtocol
local: StepReferenceProtocol
git: StepReferenceProtocol
zip: StepReferenceProtocol
oci: StepReferenceProtocol
dist: StepReferenceProtocol
dynamic: StepReferenceProtocol
spec_def: StepReferenceProtocol
definition_type_unspecified: DefinitionType
exec: DefinitionType
steps: DefinitionType
output_method_unspecified: OutputMethod
outputs: OutputMethod
delegate: OutputMethod
value_type_unspecified: ValueType
string: ValueType
number: ValueType
boolean: ValueType
struct: ValueType
array: ValueType

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

class Step(_message.Message):
    __slots__ = ("name", "step", "env", "inputs")
    class Reference(_message.Message):
        __slots__ = ("protocol", "url", "path", "filename", "version", "registry", "repository", "tag", "specDef", "path_exp", "paths")
        PROTOCOL_FIELD_NUMBER: _ClassVar[int]
        URL_FIELD_NUMBER: _ClassVar[int]
        PATH_FIELD_NUMBER: _ClassVar[int]
        FILENAME_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        REGISTRY_FIELD_NUMBER: _ClassVar[int]
        REPOSITORY_FIELD_NUMBER: _ClassVar[int]
        TAG_FIELD_NUMBER: _ClassVar[int]
        SPECDEF_FIELD_NUMBER: _ClassVar[int]
        PATH_EXP_FIELD_NUMBER: _ClassVar[int]
        PATHS_FIELD_NUMBER: _ClassVar[int]
        protocol: StepReferenceProtocol
        url: str
        path: _containers.RepeatedScalarFieldContainer[str]
        filename: str
        version: str
        registry: str
        repository: str
        tag: str
        specDef: SpecDefinition
        path_exp: str
        paths: PathParts
        def __init__(self, protocol: _Optional[_Union[StepReferenceProtocol, str]] = ..., url: _Optional[str] = ..., path: _Optional[_Iterable[str]] = ..., filename: _Optional[str] = ..., version: _Optional[str] = ..., registry: _Optional[str] = ..., repository: _Optional[str] = ..., tag: _Optional[str] = ..., specDef: _Optional[_Union[SpecDefinition, _Mapping]] = ..., path_exp: _Optional[str] = ..., paths: _Optional[_Union[PathParts, _Mapping]] = ...) -> None: ...
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    step: Step.Reference
    env: _containers.ScalarMap[str, str]
    inputs: _containers.MessageMap[str, _struct_pb2.Value]
    def __init__(self, name: _Optional[str] = ..., step: _Optional[_Union[Step.Reference, _Mapping]] = ..., env: _Optional[_Mapping[str, str]] = ..., inputs: _Optional[_Mapping[str, _struct_pb2.Value]] = ...) -> None: ...

class PathParts(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parts: _Optional[_Iterable[str]] = ...) -> None: ...

class Definition(_message.Message):
    __slots__ = ("type", "exec", "steps", "outputs", "env", "delegate")
    class Exec(_message.Message):
        __slots__ = ("command", "work_dir")
        COMMAND_FIELD_NUMBER: _ClassVar[int]
        WORK_DIR_FIELD_NUMBER: _ClassVar[int]
        command: _containers.RepeatedScalarFieldContainer[str]
        work_dir: str
        def __init__(self, command: _Optional[_Iterable[str]] = ..., work_dir: _Optional[str] = ...) -> None: ...
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ...) -> None: ...
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    DELEGATE_FIELD_NUMBER: _ClassVar[int]
    type: DefinitionType
    exec: Definition.Exec
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    outputs: _containers.MessageMap[str, _struct_pb2.Value]
    env: _containers.ScalarMap[str, str]
    delegate: str
    def __init__(self, type: _Optional[_Union[DefinitionType, str]] = ..., exec: _Optional[_Union[Definition.Exec, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., outputs: _Optional[_Mapping[str, _struct_pb2.Value]] = ..., env: _Optional[_Mapping[str, str]] = ..., delegate: _Optional[str] = ...) -> None: ...

class Spec(_message.Message):
    __slots__ = ("spec",)
    class Content(_message.Message):
        __slots__ = ("inputs", "outputs", "output_method")
        class Input(_message.Message):
            __slots__ = ("type", "default", "sensitive")
            TYPE_FIELD_NUMBER: _ClassVar[int]
            DEFAULT_FIELD_NUMBER: _ClassVar[int]
            SENSITIVE_FIELD_NUMBER: _ClassVar[int]
            type: ValueType
            default: _struct_pb2.Value
            sensitive: bool
            def __init__(self, type: _Optional[_Union[ValueType, str]] = ..., default: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., sensitive: _Optional[bool] = ...) -> None: ...
        class Output(_message.Message):
            __slots__ = ("type", "default", "sensitive")
            TYPE_FIELD_NUMBER: _ClassVar[int]
            DEFAULT_FIELD_NUMBER: _ClassVar[int]
            SENSITIVE_FIELD_NUMBER: _ClassVar[int]
            type: ValueType
            default: _struct_pb2.Value
            sensitive: bool
            def __init__(self, type: _Optional[_Union[ValueType, str]] = ..., default: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., sensitive: _Optional[bool] = ...) -> None: ...
        class InputsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Spec.Content.Input
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Spec.Content.Input, _Mapping]] = ...) -> None: ...
        class OutputsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Spec.Content.Output
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Spec.Content.Output, _Mapping]] = ...) -> None: ...
        INPUTS_FIELD_NUMBER: _ClassVar[int]
        OUTPUTS_FIELD_NUMBER: _ClassVar[int]
        OUTPUT_METHOD_FIELD_NUMBER: _ClassVar[int]
        inputs: _containers.MessageMap[str, Spec.Content.Input]
        outputs: _containers.MessageMap[str, Spec.Content.Output]
        output_method: OutputMethod
        def __init__(self, inputs: _Optional[_Mapping[str, Spec.Content.Input]] = ..., outputs: _Optional[_Mapping[str, Spec.Content.Output]] = ..., output_method: _Optional[_Union[OutputMethod, str]] = ...) -> None: ...
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: Spec.Content
    def __init__(self, spec: _Optional[_Union[Spec.Content, _Mapping]] = ...) -> None: ...

class SpecDefinition(_message.Message):
    __slots__ = ("spec", "definition", "dir")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    DIR_FIELD_NUMBER: _ClassVar[int]
    spec: Spec
    definition: Definition
    dir: str
    def __init__(self, spec: _Optional[_Union[Spec, _Mapping]] = ..., definition: _Optional[_Union[Definition, _Mapping]] = ..., dir: _Optional[str] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("step", "specDefinition", "status", "outputs", "exports", "env", "exec_result", "sub_step_results")
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
    class ExecResult(_message.Message):
        __slots__ = ("command", "work_dir", "exit_code")
        COMMAND_FIELD_NUMBER: _ClassVar[int]
        WORK_DIR_FIELD_NUMBER: _ClassVar[int]
        EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
        command: _containers.RepeatedScalarFieldContainer[str]
        work_dir: str
        exit_code: int
        def __init__(self, command: _Optional[_Iterable[str]] = ..., work_dir: _Optional[str] = ..., exit_code: _Optional[int] = ...) -> None: ...
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
    STEP_FIELD_NUMBER: _ClassVar[int]
    SPECDEFINITION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    EXEC_RESULT_FIELD_NUMBER: _ClassVar[int]
    SUB_STEP_RESULTS_FIELD_NUMBER: _ClassVar[int]
    step: Step
    specDefinition: SpecDefinition
    status: StepResult.Status
    outputs: _containers.MessageMap[str, _struct_pb2.Value]
    exports: _containers.ScalarMap[str, str]
    env: _containers.ScalarMap[str, str]
    exec_result: StepResult.ExecResult
    sub_step_results: _containers.RepeatedCompositeFieldContainer[StepResult]
    def __init__(self, step: _Optional[_Union[Step, _Mapping]] = ..., specDefinition: _Optional[_Union[SpecDefinition, _Mapping]] = ..., status: _Optional[_Union[StepResult.Status, str]] = ..., outputs: _Optional[_Mapping[str, _struct_pb2.Value]] = ..., exports: _Optional[_Mapping[str, str]] = ..., env: _Optional[_Mapping[str, str]] = ..., exec_result: _Optional[_Union[StepResult.ExecResult, _Mapping]] = ..., sub_step_results: _Optional[_Iterable[_Union[StepResult, _Mapping]]] = ...) -> None: ...
