"""The interface to stored blobs: artifacts and other large objects that are written once and addressed by key."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from remuda.cell.errors import InvalidError


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    modified_at: float


_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*", re.ASCII)


def check_key(key: str) -> str:
    """Return the key unchanged. Raises InvalidError if it is too long or contains characters that keys may not have."""
    if len(key) > 500 or not _KEY.fullmatch(key):
        raise InvalidError(f"{key!r} is no key for a blob: names of letters, digits, '.', '_' and '-' with '/' between")
    return key


class Blobs(Protocol):
    async def close(self) -> None: ...

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        """Store a stream of bytes under a key. Returns its size and SHA-256. Raises TooLargeError if it is longer than
        `limit_bytes`; nothing is stored then."""
        ...

    async def take(self, key: str, file: Path) -> None:
        """Store a local file under a key, and remove the file. The caller must have synced the file to disk."""
        ...

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a blob from `start` on, in pieces. Raises NotFoundError if there is no such blob."""
        ...

    def open(self, key: str) -> BinaryIO:
        """Open a blob as a seekable file, which the caller closes. Opening and reading block, so callers do both in a
        thread. Raises NotFoundError if there is no such blob."""
        ...

    async def remove(self, key: str) -> None: ...

    def list_below(self, prefix: str) -> AsyncIterator[StoredBlob]:
        """Yield all blobs whose keys begin with `prefix/`, in any order."""
        ...
