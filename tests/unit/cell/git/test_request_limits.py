"""What of a git request is passed on to git."""

import zlib
from collections.abc import AsyncIterator

import pytest

from remuda.cell.git.request_limits import limit_lists, unpack

LISTS = b"0008abcd" * 3 + b"0000" + b"0009hello" + b"0000"
PACK = b"PACK" + bytes(range(256))


async def cut(body: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


async def joined(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


def packed(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 1000])
@pytest.mark.parametrize("body", [b"", LISTS, LISTS + PACK, PACK, b"00", b"zzzz" + LISTS * 9], ids=range(6))
async def test_a_push_within_the_limit_is_passed_on(size: int, body: bytes) -> None:
    # The begin of the pack counts until it is known as that.
    assert await joined(limit_lists(cut(body, size), len(LISTS) + 6)) == body


@pytest.mark.parametrize("size", [1, 3, 4, 1000])
@pytest.mark.parametrize("more", [b"", b"0000", b"0000" + PACK, b"0001"])
async def test_lists_beyond_the_limit_end_the_push(size: int, more: bytes) -> None:
    """Whether it is the list of refs or that of options."""
    for body in (b"000bcommand" * 100, LISTS + b"000aoption" * 100):
        output = await joined(limit_lists(cut(body + more, size), 500))
        assert len(output) <= 500
        assert body.startswith(output)


@pytest.mark.parametrize("size", [1, 100, 10**6])
async def test_a_packed_body_comes_in_small_pieces(size: int) -> None:
    body = bytes(10**6) + bytes(range(256)) * 3
    pieces = [piece async for piece in unpack(cut(packed(body), size))]
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= 65536


@pytest.mark.parametrize("length", [0, 65536, 131072])
async def test_pieces_that_are_just_full(length: int) -> None:
    assert await joined(unpack(cut(packed(bytes(length)), 10**6))) == bytes(length)


async def test_a_damaged_body_ends() -> None:
    assert await joined(unpack(cut(b"nothing packed", 3))) == b""
    assert await joined(unpack(cut(packed(LISTS) + b"more" * 100_000, 1000))) == LISTS
