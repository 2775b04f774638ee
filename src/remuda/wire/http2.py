"""HTTP/2 as connections to agents and plugins use it: what the library leaves open, larger frames, none written out.

A frame carries 16 KiB unless the receiver allows more, and in Python each costs as much as copying ten times that: a
message of a log is one frame here. And h2 makes a text of every frame that comes, with all its bytes as hexadecimal
digits, for a log that nobody reads. Who makes a connection makes a `LiveChannel`. Standard library and what grpclib
brings only.
"""

from grpclib.client import Channel
from grpclib.protocol import H2Protocol
from h2.settings import SettingCodes
from hyperframe.frame import Frame

FRAME_BYTES = 256 * 1024
"""More than the largest message of a log, less than a stream's window."""


class LiveChannel(Channel):
    """A connection that cannot be made is an OSError, also where the other side hangs up in the act.

    The library hands out a connection that was lost between its being made and its being used, and then misses a part
    of it: an AttributeError, which nobody takes for a peer that has died.
    """

    async def __connect__(self) -> H2Protocol:
        protocol = await super().__connect__()
        if protocol.handler.connection_lost:  # type: ignore[attr-defined]
            raise ConnectionResetError("the other side hung up as soon as it was reached")
        return protocol


async def allow_large_frames(channel: Channel) -> None:
    """Let the other side of a channel, which is connected for it, send frames of that size; it may as well not."""
    connection = (await channel.__connect__()).connection
    connection._connection.update_settings({SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES})
    connection.flush()


def leave_frames_untold() -> None:
    """From now on the text of a frame, in this process, is only that it is one."""
    Frame.__repr__ = object.__repr__  # type: ignore[method-assign]
