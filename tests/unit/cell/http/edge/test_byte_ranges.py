"""Parts of a file that a `Range` header asks for."""

from collections.abc import AsyncGenerator

import pytest

from remuda.cell.http.edge.byte_ranges import Content, answer_content, limit_bytes
from remuda.cell.http.edge.errors import ApiError

DATA = b"0123456789"


def content(data: bytes = DATA) -> Content:
    async def read(start: int) -> AsyncGenerator[bytes, None]:
        yield data[start:]

    return Content(read=read, size=len(data), tag='"v1"', media_type="application/zip")


async def send(response: object) -> tuple[int, dict[str, str], bytes]:
    status, headers, body = 0, {}, b""

    async def collect(message: object) -> None:
        nonlocal status, headers, body
        assert isinstance(message, dict)
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            body += message["body"]

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    assert callable(response)
    await response({"type": "http"}, receive, collect)
    return status, headers, body


@pytest.mark.parametrize(
    ("requested", "start", "end"),
    [("bytes=0-0", 0, 1), ("bytes=4-", 4, 10), ("bytes=-3", 7, 10), ("bytes=-99", 0, 10), ("bytes=8-99", 8, 10)],
)
async def test_one_range_is_answered_with_206(requested: str, start: int, end: int) -> None:
    status, headers, _ = await send(answer_content({"range": requested}, content()))
    assert status == 206
    assert headers["content-range"] == f"bytes {start}-{end - 1}/10"
    assert headers["content-length"] == str(end - start)
    assert headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize("requested", ["bytes=1-2,4-5", "bytes=5-4", "bytes=-", "lines=1-2", "bytes=x-", "bytes=--1"])
async def test_several_or_malformed_ranges_are_answered_whole(requested: str) -> None:
    status, headers, _ = await send(answer_content({"range": requested}, content()))
    assert (status, headers["content-length"]) == (200, "10")


@pytest.mark.parametrize("requested", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_a_range_without_bytes_is_416(requested: str) -> None:
    with pytest.raises(ApiError) as refused:
        answer_content({"range": requested}, content())
    assert (refused.value.status, refused.value.headers["Content-Range"]) == (416, "bytes */10")


async def test_conditions() -> None:
    assert (await send(answer_content({"range": "bytes=4-", "if-range": '"v1"'}, content())))[0] == 206
    assert (await send(answer_content({"range": "bytes=4-", "if-range": '"v0"'}, content())))[0] == 200
    assert (await send(answer_content({"range": "bytes=4-", "if-range": 'W/"v1"'}, content())))[0] == 200
    assert (await send(answer_content({"if-none-match": '"v0", W/"v1"'}, content())))[::2] == (304, b"")
    assert (await send(answer_content({"if-none-match": '"v0"'}, content())))[0] == 200


async def test_the_source_is_closed_when_the_requested_bytes_are_sent() -> None:
    is_closed = False

    async def read_log() -> AsyncGenerator[bytes, None]:
        nonlocal is_closed
        try:
            yield b"hello"
            yield b" world"
        finally:
            is_closed = True

    source = read_log()
    assert [piece async for piece in limit_bytes(source, 3)] == [b"hel"]
    assert is_closed
