"""Joining of the writes of a response: head and body leave the process in one write."""

import asyncio

from remuda.cell.http.edge.connections import HELD_BYTES, JoinedWrites


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


async def test_head_and_body_are_written_together_in_the_next_loop_iteration() -> None:
    transport = RecordingTransport()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    for number in range(2):
        joined.write(b"head ")
        joined.write(b"body")
        assert len(transport.writes) == number
        await asyncio.sleep(0)
        assert transport.writes == [b"head body"] * (number + 1)


async def test_the_buffer_is_limited() -> None:
    transport = RecordingTransport()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    piece = b"x" * (HELD_BYTES // 2)
    for _ in range(6):
        joined.write(piece)
    assert transport.writes == [piece * 2] * 3
    await asyncio.sleep(0)
    assert len(transport.writes) == 3


async def test_close_writes_the_buffer_first() -> None:
    transport = RecordingTransport()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    joined.write(b"last words")
    joined.close()
    assert (transport.writes, transport.is_closed) == ([b"last words"], True)
    await asyncio.sleep(0)
    assert transport.writes == [b"last words"]
