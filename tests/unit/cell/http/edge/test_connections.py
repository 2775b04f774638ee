"""What an answer is written as."""

import asyncio

from remuda.cell.http.edge.connections import HELD_BYTES, JoinedWrites


class Written(asyncio.Transport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True


async def test_head_and_body_leave_together_with_the_next_turn_of_the_loop() -> None:
    transport = Written()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    for number in range(2):
        joined.write(b"head ")
        joined.write(b"body")
        assert len(transport.writes) == number
        await asyncio.sleep(0)
        assert transport.writes == [b"head body"] * (number + 1)


async def test_what_is_held_is_bounded() -> None:
    transport = Written()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    piece = b"x" * (HELD_BYTES // 2)
    for _ in range(6):
        joined.write(piece)
    assert transport.writes == [piece * 2] * 3
    await asyncio.sleep(0)
    assert len(transport.writes) == 3


async def test_a_close_writes_what_is_held_first() -> None:
    transport = Written()
    joined = JoinedWrites(transport, asyncio.get_running_loop())
    joined.write(b"last words")
    joined.close()
    assert (transport.writes, transport.is_closed) == ([b"last words"], True)
    await asyncio.sleep(0)
    assert transport.writes == [b"last words"]
