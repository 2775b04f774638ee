"""How a log is sent."""

from collections.abc import AsyncGenerator

from remuda.cell.http.runner.trace import _limit_bytes


async def test_a_log_is_closed_when_enough_of_it_is_sent() -> None:
    is_closed = False

    async def log() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            yield b"hello"
            yield b" world"
        finally:
            is_closed = True

    source = log()
    assert [piece async for piece in _limit_bytes(source, 3)] == [b"hel"]
    assert is_closed
