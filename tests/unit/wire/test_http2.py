"""Messages of an agent in large frames, sent by a server that notes how large they may be."""

from typing import Any

from grpclib.client import UnaryStreamMethod
from grpclib.const import Cardinality, Handler
from grpclib.testing import ChannelFor
from hyperframe.frame import DataFrame

from remuda.wire.http2 import FRAME_BYTES, allow_large_frames, leave_frames_untold
from remuda.wire.proto.step_runner_pb2 import FollowLogsRequest, FollowLogsResponse

PATH = "/tests.Source/Read"
MESSAGE = bytes(range(256)) * 400


class Source:
    """Sends one message."""

    allowed = 0

    async def read(self, stream: Any) -> None:
        await stream.recv_message()
        self.allowed = stream._stream.connection._connection.max_outbound_frame_size
        await stream.send_message(FollowLogsResponse(data=MESSAGE))

    def __mapping__(self) -> dict[str, Handler]:
        return {PATH: Handler(self.read, Cardinality.UNARY_STREAM, FollowLogsRequest, FollowLogsResponse)}


async def test_the_other_side_may_send_large_frames() -> None:
    source = Source()
    async with ChannelFor([source]) as channel:
        await allow_large_frames(channel)
        await allow_large_frames(channel)  # the same again, by a second watch
        method = UnaryStreamMethod(channel, PATH, FollowLogsRequest, FollowLogsResponse)
        assert [message.data for message in await method(FollowLogsRequest(id="1"))] == [MESSAGE]
    assert source.allowed == FRAME_BYTES


def test_a_frame_is_not_written_out() -> None:
    leave_frames_untold()
    assert b"secret".hex() not in repr(DataFrame(1, b"secret"))
