"""Sending a job log."""

from collections.abc import AsyncGenerator

from remuda.cell.http.runner.trace import _limit_bytes


async def test_a_log_is_closed_when_the_requested_bytes_are_sent() -> None:
    is_closed = False

    async def read_log() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            yield b"hello"
            yield b" world"
        finally:
            is_closed = True

    source = read_log()
    assert [piece async for piece in _limit_bytes(source, 3)] == [b"hel"]
    assert is_closed
