"""HTTP/2 as the agent's connections use it: larger frames than the library's, and none of them written out.

A frame carries 16 KiB unless the receiver allows more, and in Python each costs as much as copying ten times that: a
message of a log is one frame here. And h2 makes a text of every frame that comes, with all its bytes as hexadecimal
digits, for a log that nobody reads. `agent_client` is the caller. Standard library and what grpclib brings only.
"""

from grpclib.client import Channel
from h2.settings import SettingCodes
from hyperframe.frame import Frame

FRAME_BYTES = 256 * 1024
"""More than the largest message of a log, less than a stream's window."""


async def allow_large_frames(channel: Channel) -> None:
    """Let the other side of a channel, which is connected for it, send frames of that size; it may as well not."""
    connection = (await channel.__connect__()).connection
    connection._connection.update_settings({SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES})
    connection.flush()


def leave_frames_untold() -> None:
    """From now on the text of a frame, in this process, is only that it is one."""
    Frame.__repr__ = object.__repr__  # type: ignore[method-assign]
