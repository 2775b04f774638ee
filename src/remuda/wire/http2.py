"""HTTP/2 settings that make gRPC connections to agents and plugins faster, and corrections of three faults of grpclib.

`LiveChannel` corrects one. Importing this module corrects the others: grpclib reads a message of any size, up to 4 GiB,
into memory, which the other side could abuse; here LARGEST_MESSAGE_BYTES is the limit. And grpclib ends a call
(deadline, lost connection) by cancelling the waiting task, then raises another error without taking the cancellation
back (`Task.uncancel`), so a TaskGroup or, before Python 3.11.4, `asyncio.timeout` would treat the task as cancelled."""

import asyncio
from collections import Counter
from types import TracebackType

from grpclib.client import Channel
from grpclib.exceptions import ProtocolError
from grpclib.protocol import H2Protocol, Stream
from grpclib.utils import Wrapper
from h2.settings import SettingCodes
from hyperframe.frame import Frame

FRAME_BYTES = 256 * 1024
"""Larger than the largest message of a log, smaller than the window of a stream."""

LARGEST_MESSAGE_BYTES = 256 * 1024**2
"""Larger than any message that an agent, a plugin or one of their clients sends."""


class LiveChannel(Channel):
    """A gRPC channel that raises OSError if the peer closes a connection as soon as it is made. grpclib's own channel
    raises AttributeError later, which callers do not treat as a lost connection."""

    async def __connect__(self) -> H2Protocol:
        protocol = await super().__connect__()
        if protocol.handler.connection_lost:  # type: ignore[attr-defined]
            raise ConnectionResetError("the other side hung up as soon as it was reached")
        return protocol


async def allow_large_frames(channel: Channel) -> None:
    """Connect the channel and allow frames of up to FRAME_BYTES from the peer: fewer frames save time."""
    connection = (await channel.__connect__()).connection
    connection._connection.update_settings({SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES})
    connection.flush()


def disable_frame_texts() -> None:
    """Make `repr` of HTTP/2 frames cheap, in the whole process: h2 formats every frame for its debug log."""
    Frame.__repr__ = object.__repr__  # type: ignore[method-assign]


_receive = Stream.recv_data
_cancel_tasks = Wrapper.cancel
_raise_error = Wrapper.__exit__


async def _receive_within_limit(stream: Stream, size: int) -> bytes:
    if size > LARGEST_MESSAGE_BYTES:
        raise ProtocolError(f"the other side sends a message of {size} bytes; the limit is {LARGEST_MESSAGE_BYTES}")
    return await _receive(stream, size)


def _count_cancellations(wrapper: Wrapper, error: Exception) -> None:
    requests = wrapper.__dict__.setdefault("requests", Counter())
    requests.update(wrapper._tasks)
    _cancel_tasks(wrapper, error)


def _take_back_cancellations(
    wrapper: Wrapper, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
) -> None:
    task = asyncio.current_task()
    if task is not None and "requests" in wrapper.__dict__:
        for _ in range(wrapper.__dict__["requests"].pop(task, 0)):
            task.uncancel()
    _raise_error(wrapper, kind, error, traceback)


Stream.recv_data = _receive_within_limit  # type: ignore[assignment,method-assign]
Wrapper.cancel = _count_cancellations  # type: ignore[assignment,method-assign]
Wrapper.__exit__ = _take_back_cancellations  # type: ignore[method-assign]
