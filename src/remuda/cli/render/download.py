"""Writes a download to a file, and shows the progress of a large one on the terminal. A separate module for every
command that downloads."""

import sys
import time
from collections.abc import AsyncIterator
from typing import BinaryIO

from remuda.localrun.render.words import size_in_words

LARGE_BYTES = 4 * 1024 * 1024
"""A download of this size or more shows its progress."""
LOOK_SECONDS = 0.2


async def copy_pieces(pieces: AsyncIterator[bytes], out: BinaryIO, size: int | None) -> int:
    """Copy a download of about `size` bytes (None: unknown) to `out`. Returns the number of bytes."""
    shows = sys.stderr.isatty() and (size is None or size >= LARGE_BYTES)
    count, shown_at = 0, 0.0
    try:
        async for piece in pieces:
            out.write(piece)
            count += len(piece)
            if shows and time.monotonic() - shown_at >= LOOK_SECONDS:
                shown_at = time.monotonic()
                _show(count, size)
    finally:
        if shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return count


def _show(count: int, size: int | None) -> None:
    total = f" of {size_in_words(size)} ({min(100, 100 * count // size)} %)" if size else ""
    print(f"\r\x1b[K{size_in_words(count)}{total}", end="", file=sys.stderr, flush=True)
