"""Limits of git request bodies: lists of refs and options in a push, and gzip bodies."""

import zlib
from collections.abc import AsyncIterator

import pytest

from remuda.cell.git.request_limits import limit_lists, unpack

LISTS = b"0008abcd" * 3 + b"0000" + b"0009hello" + b"0000"
PACK = b"PACK" + bytes(range(256))


async def cut(body: bytes, size: int) -> AsyncIterator[bytes]:
    for offset in range(0, len(body), size):
        yield body[offset : offset + size]


async def join(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


def compress(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 1000])
@pytest.mark.parametrize("body", [b"", LISTS, LISTS + PACK, PACK, b"00", b"zzzz" + LISTS * 9], ids=range(6))
async def test_a_push_within_the_limit_is_passed_on(size: int, body: bytes) -> None:
    # The first bytes of the pack count until they are recognized as a pack.
    assert await join(limit_lists(cut(body, size), len(LISTS) + 6)) == body


@pytest.mark.parametrize("size", [1, 3, 4, 1000])
@pytest.mark.parametrize("more", [b"", b"0000", b"0000" + PACK, b"0001"])
async def test_lists_beyond_the_limit_are_cut_off(size: int, more: bytes) -> None:
    """This applies to the list of refs and to the list of push options."""
    for body in (b"000bcommand" * 100, LISTS + b"000aoption" * 100):
        output = await join(limit_lists(cut(body + more, size), 500))
        assert len(output) <= 500
        assert body.startswith(output)


@pytest.mark.parametrize("size", [1, 100, 10**6])
async def test_a_compressed_body_is_unpacked_in_small_pieces(size: int) -> None:
    body = bytes(10**6) + bytes(range(256)) * 3
    pieces = [piece async for piece in unpack(cut(compress(body), size))]
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= 65536


@pytest.mark.parametrize("length", [0, 65536, 131072])
async def test_bodies_with_a_multiple_of_the_piece_size(length: int) -> None:
    assert await join(unpack(cut(compress(bytes(length)), 10**6))) == bytes(length)


async def test_a_damaged_body_ends_at_the_damage() -> None:
    assert await join(unpack(cut(b"nothing packed", 3))) == b""
    assert await join(unpack(cut(compress(LISTS) + b"more" * 100_000, 1000))) == LISTS
