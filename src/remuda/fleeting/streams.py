"""The streams that go-plugin's hosts keep open beside the calls, and the errors with which a plugin's end shows there.

A plugin in Go that prints may wait until somebody reads, so its output is read always. `host` logs it; `conformance`
does as hosts do.
"""

from collections.abc import Callable
from contextlib import suppress

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.wire.proto.fleeting_process_grpc import GRPCBrokerStub, GRPCStdioStub

ENDS = (GRPCError, ProtocolError, StreamTerminatedError, OSError, TimeoutError)


async def read_stdio(channel: Channel, hear: Callable[[bytes], None]) -> None:
    """What the plugin prints, piece by piece, until it ends."""
    with suppress(*ENDS):
        async with GRPCStdioStub(channel).StreamStdio.open() as stream:
            await stream.send_message(Empty(), end=True)
            async for piece in stream:
                if piece.data:
                    hear(piece.data)


async def hold_broker(channel: Channel) -> None:
    """Nothing comes."""
    with suppress(*ENDS):
        async with GRPCBrokerStub(channel).StartStream.open() as stream:
            await stream.send_request()
            await stream.recv_message()
