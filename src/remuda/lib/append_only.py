"""Files that only grow, written by clients that repeat a piece when its answer was lost.

A piece is addressed by its byte offset. Bytes that the file has already must be equal; a gap or other bytes are
refused. Used for traces and for the streams of shells.
"""

import os
from typing import NamedTuple


class Appended(NamedTuple):
    """The result of an append: whether the bytes were accepted, and the size of the file now."""

    taken: bool
    size: int


def append(file: int, size: int, start: int, data: bytes) -> Appended:
    """Add bytes at `start` to an open file of that size. A failed write leaves the file as it was."""
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
    """How many of the bytes the file has already; None when they differ, or begin behind the end."""
    if not 0 <= start <= size:
        return None
    common = min(size - start, len(data))
    return common if not common or os.pread(file, common, start) == data[:common] else None
