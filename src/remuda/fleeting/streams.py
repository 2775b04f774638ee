"""Reads the go-plugin streams that a host keeps open, because a Go plugin may block until its output is read. `ENDS`
are the errors by which such a stream, or another call, fails when the plugin has ended."""

from collections.abc import Callable
from contextlib import suppress

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.wire.proto.fleeting_process_grpc import GRPCBrokerStub, GRPCStdioStub

ENDS = (GRPCError, ProtocolError, StreamTerminatedError, OSError, TimeoutError)


async def read_stdio(channel: Channel, hear: Callable[[bytes], None]) -> None:
    """Call `hear` with each piece of output that the plugin sends (not split into lines), until the plugin ends."""
    with suppress(*ENDS):
        async with GRPCStdioStub(channel).StreamStdio.open() as stream:
            await stream.send_message(Empty(), end=True)
            async for piece in stream:
                if piece.data:
                    hear(piece.data)


async def hold_broker(channel: Channel) -> None:
    """Keep go-plugin's broker stream (for more connections) open until the plugin ends. No messages are expected."""
    with suppress(*ENDS):
        async with GRPCBrokerStub(channel).StartStream.open() as stream:
            await stream.send_request()
            await stream.recv_message()
