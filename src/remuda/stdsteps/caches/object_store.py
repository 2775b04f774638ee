"""Caches in object storage, through presigned URLs: each is valid for one object, one method and a limited time. The
job's machine has no credentials of the storage. A 404 is a cache miss. The storage checks the MD5 of an upload; when an
archive is unpacked, the CRC of each file is checked. Callers turn errors into warnings: a job can run without its
cache."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

from remuda.stdsteps.common.archive import END_BYTES, is_end
from remuda.stdsteps.common.transfer import CHUNK_BYTES, HttpError, read_some, request, store, with_retries

PATIENCE_SECONDS = 60.0
"""How long an unreachable storage is waited for. Short, because a job can run without its cache."""


def fetch(url: str, target: Path) -> int | None:
    """Download an object to the file `target` and return its size in bytes; None if it does not exist. Raises StepError
    if the download fails."""

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
    """Upload an archive with its MD5, which the storage checks. Retries transient errors. Raises StepError if the
    upload fails."""
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
    """True if the zip archive at `url` has this comment. Downloads only the end of the archive. False if the download
    fails or the storage does not support range requests."""
    size = END_BYTES + len(comment)
    try:
        with request("GET", url, headers={"Range": f"bytes=-{size}"}) as response:
            if response.status != 206:
                return False
            return is_end(read_some(response, size), comment)
    except HttpError:
        return False


def _md5(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()
