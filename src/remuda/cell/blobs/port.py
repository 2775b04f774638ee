"""Artifacts and other large things that are written once."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from remuda.cell.errors import InvalidError


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob as a list tells it."""

    key: str
    modified_at: float


_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*", re.ASCII)


def check_key(key: str) -> str:
    """The key unchanged; InvalidError when it has other characters than keys may have."""
    if len(key) > 500 or not _KEY.fullmatch(key):
        raise InvalidError(f"{key!r} is no key for a blob: names of letters, digits, '.', '_' and '-' with '/' between")
    return key


class Blobs(Protocol):
    """Large immutable things by key."""

    async def close(self) -> None: ...

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        """Stream in; size and SHA-256. TooLargeError beyond the limit, and nothing is left behind."""
        ...

    async def take(self, key: str, file: Path) -> None:
        """Keep a local file, which is on disk to stay, under this key; afterwards it is here and not there."""
        ...

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` on, in pieces; NotFoundError when there is none."""
        ...

    def open(self, key: str) -> BinaryIO:
        """For reading at any place. This call and all reading block: in a thread. The caller closes it.

        NotFoundError when there is none.
        """
        ...

    async def remove(self, key: str) -> None: ...

    def list_below(self, prefix: str) -> AsyncIterator[StoredBlob]:
        """All blobs in a folder of keys and below it, in any order."""
        ...
