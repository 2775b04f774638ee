"""Append-only files, written by clients that resend a piece when the response was lost.

A piece has a byte offset. Where it overlaps the file, the bytes must be equal; a gap or different bytes are refused."""

import os
from typing import NamedTuple


class Appended(NamedTuple):
    """Whether the bytes were accepted, and the size of the file now."""

    taken: bool
    size: int


def append(file: int, size: int, start: int, data: bytes) -> Appended:
    """Append the bytes of `data` (at offset `start`) beyond the end of the file of `size` bytes; nothing if there is a
    gap or overlapping bytes differ. If writing fails, cuts them off unless others wrote after them; raises OSError."""
    common = overlap(file, size, start, data)
    if common is None:
        return Appended(taken=False, size=size)
    rest = memoryview(data)[common:]
    end = size
    try:
        while rest:
            written = os.pwrite(file, rest, end)
            rest = rest[written:]
            end += written
    except OSError:
        if os.fstat(file).st_size == end:  # else another process has written behind these bytes
            os.ftruncate(file, size)
        raise
    return Appended(taken=True, size=end)


def overlap(file: int, size: int, start: int, data: bytes) -> int | None:
    """Return how many first bytes of `data` the file has at `start`; None if they differ or `start` is past its end."""
    if not 0 <= start <= size:
        return None
    common = min(size - start, len(data))
    return common if not common or os.pread(file, common, start) == data[:common] else None
