"""Caches in an object storage, through addresses that somebody else has signed: each is good for one object, for one
method and for a time. No credential of the storage is here.

Decided here is what an answer of the storage means for a cache: 404 is a miss, and nothing that goes wrong ends the
job. An archive is checked by the storage while it is sent (Content-MD5) and, file by file, when it is unpacked.
`cache_restore` and `cache_save` are the callers.
"""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

from remuda.stdsteps.common.archive import END_BYTES, is_end
from remuda.stdsteps.common.transfer import CHUNK_BYTES, HttpError, read_some, request, store, with_retries

PATIENCE_SECONDS = 60.0
"""For a storage that is away. A job can do without its cache, so it does not wait long."""


def fetch(url: str, target: Path) -> int | None:
    """Stream an object to a file; its size, None where there is no such object."""

    def attempt(_: int) -> int | None:
        try:
            with request("GET", url) as response:
                return store(response, target)
        except HttpError as error:
            if error.status == 404:
                return None
            raise

    return with_retries("downloading the cache", attempt, patience=PATIENCE_SECONDS)


def send(url: str, archive: Path) -> None:
    """Stream a file to an object."""
    headers = {
        "Content-Length": str(archive.stat().st_size),
        "Content-Type": "application/octet-stream",
        "Content-MD5": base64.b64encode(_md5(archive)).decode(),
    }

    def body() -> Iterator[bytes]:
        with archive.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    with_retries(
        "uploading the cache",
        lambda _: request("PUT", url, body=body, headers=headers, redirects=0).close(),
        patience=PATIENCE_SECONDS,
    )


def has_comment(url: str, comment: bytes) -> bool:
    """Whether the archive there was written with this comment: only its end is looked at."""
    wanted = END_BYTES + len(comment)
    try:
        with request("GET", url, headers={"Range": f"bytes=-{wanted}"}) as response:
            if response.status != 206:
                return False
            return is_end(read_some(response, wanted), comment)
    except HttpError:
        return False


def _md5(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()
