"""Details of a gRPC status, in which Suspend and Resume report instances that succeeded although others failed."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError, Message
from grpclib.const import Status
from grpclib.encoding.base import StatusDetailsCodecBase

from remuda.wire.proto import fleeting_pb2 as pb
from remuda.wire.proto.fleeting_abilities_pb2 import StatusDetails

_KNOWN: dict[str, type[Message]] = {kind.DESCRIPTOR.full_name: kind for kind in (pb.SuspendResponse, pb.ResumeResponse)}


class Details(StatusDetailsCodecBase):
    """Codec of gRPC error details. Decodes only SuspendResponse and ResumeResponse: which instances succeeded."""

    def encode(self, status: Status, message: str | None, details: Sequence[Message]) -> bytes:
        packed = StatusDetails(code=status.value, message=message or "")
        for detail in details:
            packed.details.add().Pack(detail)
        return packed.SerializeToString()

    def decode(self, status: Status, message: str | None, data: bytes) -> Sequence[Any]:
        try:
            packed = [detail for detail in StatusDetails.FromString(data).details if detail.TypeName() in _KNOWN]
            return [_KNOWN[detail.TypeName()].FromString(detail.value) for detail in packed]
        except DecodeError:
            return []  # the status itself names the error
