"""The port to blobs: artifacts and other large objects that are written once and addressed by key."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from remuda.cell.errors import InvalidError


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in a list of blobs."""

    key: str
    modified_at: float


_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*", re.ASCII)


def check_key(key: str) -> str:
    """The key unchanged. Raises InvalidError if it has other characters than keys may have."""
    if len(key) > 500 or not _KEY.fullmatch(key):
        raise InvalidError(f"{key!r} is no key for a blob: names of letters, digits, '.', '_' and '-' with '/' between")
    return key


class Blobs(Protocol):
    """Large immutable objects by key."""

    async def close(self) -> None: ...

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        """Store a stream; its size and SHA-256. TooLargeError beyond the limit; the key then does not exist."""
        ...

    async def take(self, key: str, file: Path) -> None:
        """Store a local file, which is synced to disk, and remove it."""
        ...

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` on, in pieces. Raises NotFoundError if there is no such blob."""
        ...

    def open(self, key: str) -> BinaryIO:
        """A seekable file. Raises NotFoundError if there is no such blob. The caller closes it.

        This call and all reads block, so they belong into a thread.
        """
        ...

    async def remove(self, key: str) -> None: ...

    def list_below(self, prefix: str) -> AsyncIterator[StoredBlob]:
        """All blobs whose keys begin with `prefix/`, in any order."""
        ...
