"""Large HTTP/2 frames, the text form of frames, and lost connections."""

import asyncio
import socket
import struct
from typing import Any

import pytest
from grpclib.client import UnaryStreamMethod
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import ProtocolError
from grpclib.protocol import H2Protocol
from grpclib.testing import ChannelFor
from hyperframe.frame import DataFrame

from remuda.wire.http2 import FRAME_BYTES, LARGEST_MESSAGE_BYTES, LiveChannel, allow_large_frames, disable_frame_texts
from remuda.wire.proto.step_runner_pb2 import FollowLogsRequest, FollowLogsResponse

PATH = "/tests.Source/Read"
MESSAGE = bytes(range(256)) * 400


class Source:
    """Sends one message, and records how large its frames may be."""

    allowed = 0
    is_silent = False
    claimed = 0
    """Sends the beginning of a message of this size."""

    async def read(self, stream: Any) -> None:
        await stream.recv_message()
        if self.is_silent:
            await asyncio.Event().wait()
        if self.claimed:
            await stream.send_initial_metadata()
            await stream._stream.send_data(struct.pack(">?I", False, self.claimed))
            await asyncio.Event().wait()
        self.allowed = stream._stream.connection._connection.max_outbound_frame_size
        await stream.send_message(FollowLogsResponse(data=MESSAGE))

    def __mapping__(self) -> dict[str, Handler]:
        return {PATH: Handler(self.read, Cardinality.UNARY_STREAM, FollowLogsRequest, FollowLogsResponse)}


async def test_the_other_side_may_send_large_frames() -> None:
    source = Source()
    async with ChannelFor([source]) as channel:
        await allow_large_frames(channel)
        await allow_large_frames(channel)  # a second call has no further effect
        method = UnaryStreamMethod(channel, PATH, FollowLogsRequest, FollowLogsResponse)
        assert [message.data for message in await method(FollowLogsRequest(id="1"))] == [MESSAGE]
    assert source.allowed == FRAME_BYTES


def test_the_repr_of_a_frame_does_not_contain_its_data() -> None:
    disable_frame_texts()
    assert b"secret".hex() not in repr(DataFrame(1, b"secret"))


class HungUpChannel(LiveChannel):
    """A channel whose peer has hung up when the first frame is written."""

    async def _create_connection(self) -> H2Protocol:
        ours, theirs = socket.socketpair()
        theirs.close()
        _, protocol = await asyncio.get_running_loop().create_connection(self._protocol_factory, sock=ours)
        return protocol


async def test_a_peer_that_hangs_up_at_once_is_a_lost_connection() -> None:
    async with HungUpChannel(path="gone") as channel:
        method = UnaryStreamMethod(channel, PATH, FollowLogsRequest, FollowLogsResponse)
        for _ in range(2):
            with pytest.raises(ConnectionResetError, match="hung up as soon as it was reached"):
                await method(FollowLogsRequest(id="1"))


async def test_a_call_that_times_out_leaves_no_cancellation() -> None:
    source = Source()
    source.is_silent = True
    async with ChannelFor([source]) as channel:
        method = UnaryStreamMethod(channel, PATH, FollowLogsRequest, FollowLogsResponse)
        with pytest.raises(TimeoutError, match="Deadline exceeded"):
            await method(FollowLogsRequest(id="1"), timeout=0.01)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_message_that_is_too_large_is_not_read() -> None:
    source = Source()
    source.claimed = LARGEST_MESSAGE_BYTES + 1
    async with ChannelFor([source]) as channel:
        method = UnaryStreamMethod(channel, PATH, FollowLogsRequest, FollowLogsResponse)
        with pytest.raises(ProtocolError, match="the limit is"):
            await method(FollowLogsRequest(), timeout=5)
