"""Reading a file from a multipart body that arrives in arbitrary pieces."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.errors import TooLargeError
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.multipart import OVERHEAD_BYTES, FilePart, safe_name


def a_body(content: bytes, *, name: str = "file", filename: str = "a.zip") -> bytes:
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'
    return head.encode() + content + b"\r\n--xyz--\r\n"


async def read(body: bytes, cuts: list[int], limit_bytes: int = 10_000) -> tuple[bytes, str]:
    async def pieces() -> AsyncIterator[bytes]:
        start = 0
        for cut in [*sorted(cuts), len(body)]:
            yield body[start:cut]
            start = max(cut, start)

    part = FilePart("multipart/form-data; boundary=xyz", limit_bytes=limit_bytes)
    content = b"".join([piece async for piece in part.pieces(pieces())])
    return content, part.filename


@given(st.data(), st.binary(max_size=300))
async def test_the_content_does_not_depend_on_the_cuts(data: st.DataObject, content: bytes) -> None:
    if b"\r\n--xyz" in content:
        return
    body = a_body(content)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    assert await read(body, cuts) == (content, "a.zip")


async def test_content_that_looks_like_a_boundary() -> None:
    content = b"\r\n--xy\r\n--xz\r\n-\r--xyz--"
    body = a_body(content)
    assert (await read(body, list(range(len(body)))))[0] == content


@given(st.integers(0, len(a_body(b"content")) - 5))
async def test_a_truncated_body_is_refused(end: int) -> None:
    with pytest.raises(ApiError):
        await read(a_body(b"content")[:end], [])


async def test_other_parts_are_limited_too() -> None:
    with pytest.raises(TooLargeError):
        await read(a_body(b"x" * (OVERHEAD_BYTES + 20_000), name="other"), [], limit_bytes=10_000)


@pytest.mark.parametrize(
    ("name", "safe"),
    [("a.zip", "a.zip"), ("/etc/passwd", "passwd"), ("..\\x\\a b.zip", "a b.zip"), ('a"\r\nX: y', "aX: y"), ("", "")],
)
def test_safe_names(name: str, safe: str) -> None:
    assert safe_name(name) == safe
