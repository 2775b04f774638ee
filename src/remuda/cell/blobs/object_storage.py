"""Blobs in a bucket: S3 and compatible servers, Google Cloud Storage or Azure, through `obstore`.

The settings name the bucket; credentials come from each provider's usual environment variables. Uploads and downloads
go in parts, so that no blob is in memory as a whole. A download requests one range of bytes after the other, so it
keeps no connection open while its reader is slow. If the process of an upload dies, its parts stay until a bucket rule
for incomplete uploads removes them."""

import asyncio
import hashlib
import io
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from remuda.cell.blobs.port import StoredBlob, check_key
from remuda.cell.errors import CellError, NotFoundError, StoreError, TooLargeError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

T = TypeVar("T")

_MEBIBYTE = 1024 * 1024
_PART_BYTES = 6 * _MEBIBYTE
_PARTS_AT_ONCE = 2
_UPLOADS_AT_ONCE = 16
"""How many uploads may send parts at the same time, about twenty mebibytes each; others wait. An upload that waits for
its sender does not count: it has only its next part in memory."""
_MOST_PARTS = 10_000
"""S3's limit for one upload."""
_READ_BYTES = 4 * _MEBIBYTE
_AHEAD_BYTES = 256 * 1024
"""The least that is fetched when single places of an archive are read."""
_LIST_BLOBS = 1000

_LINGER_SECONDS = 0.1
"""After its last answer a thread of obstore still needs the interpreter for a moment. If the interpreter is gone then,
the process aborts."""

_CLIENT: "ClientConfig" = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
_RETRY: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_OBSTORE_ERRORS = (BaseError, FileNotFoundError)
"""Errors of obstore. Errors of the sender of the bytes pass through unchanged, and may be OSError, too."""


class ObjectBlobs:
    """Blobs as objects in a bucket. The name of an object is the prefix in the bucket's address followed by the key."""

    def __init__(self, store: "ObjectStore", name: str) -> None:
        self._store = store
        self._name = name
        """The bucket's address, for errors."""
        self._uploads = asyncio.Semaphore(_UPLOADS_AT_ONCE)

    async def close(self) -> None:
        """Wait `_LINGER_SECONDS`, so that the threads of obstore end before the interpreter does."""
        await asyncio.sleep(_LINGER_SECONDS)

    async def check(self) -> None:
        """Check the access to the bucket: write, read and remove a small object. Raises CellError if that fails."""
        probe = f"probe/{uuid.uuid4().hex}"
        try:
            await obstore.put_async(self._store, probe, b"remuda")
            await obstore.get_range_async(self._store, probe, start=0, length=6)
            await obstore.delete_async(self._store, probe)
        except _OBSTORE_ERRORS as error:
            raise CellError(f"the blobs cannot be kept in {self._name}: {_describe_error(error)}") from None

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        part_bytes = max(_PART_BYTES, -(-limit_bytes // _MOST_PARTS))
        parts = _Parts(data, limit_bytes, part_bytes)
        first = await parts.next_part()
        if len(first) < part_bytes:
            await self._call(obstore.put_async(self._store, check_key(key), first, use_multipart=False))
        else:
            turn = _Turn(self._uploads)
            try:
                await obstore.put_async(
                    self._store,
                    check_key(key),
                    parts.all_from(first, turn),
                    chunk_size=part_bytes,
                    max_concurrency=_PARTS_AT_ONCE,
                )
            except _OBSTORE_ERRORS as error:
                if parts.failure is not None:
                    raise parts.failure from None
                raise self._unusable(error) from None
            finally:
                turn.end()
        return parts.size, parts.digest.hexdigest()

    async def take(self, key: str, file: Path) -> None:
        with file.open("rb") as content:
            await self._call(
                obstore.put_async(
                    self._store, check_key(key), content, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                )
            )
        file.unlink(missing_ok=True)

    async def size(self, key: str) -> int | None:
        try:
            return (await obstore.head_async(self._store, check_key(key)))["size"]
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise self._unusable(error) from None

    async def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        size = await self.size(key)
        if size is None:
            raise NotFoundError(f"there is no blob {key}")
        while start < size:
            length = min(_READ_BYTES, size - start)
            piece = await self._call(obstore.get_range_async(self._store, key, start=start, length=length))
            start += len(piece)
            yield piece.to_bytes()

    def open(self, key: str) -> BinaryIO:
        try:
            size = obstore.head(self._store, check_key(key))["size"]
        except FileNotFoundError:
            raise NotFoundError(f"there is no blob {key}") from None
        except BaseError as error:
            raise self._unusable(error) from None

        def fetch(start: int, length: int) -> memoryview:
            try:
                return memoryview(obstore.get_range(self._store, key, start=start, length=length))
            except _OBSTORE_ERRORS as error:
                raise self._unusable(error) from None

        return cast(BinaryIO, io.BufferedReader(_Ranges(fetch, size), _AHEAD_BYTES))

    async def remove(self, key: str) -> None:
        try:
            await obstore.delete_async(self._store, check_key(key))
        except FileNotFoundError:
            return
        except BaseError as error:
            raise self._unusable(error) from None

    async def list_below(self, prefix: str) -> AsyncIterator[StoredBlob]:
        try:
            async for page in obstore.list(self._store, check_key(prefix), chunk_size=_LIST_BLOBS):
                for entry in page:
                    yield StoredBlob(key=entry["path"], modified_at=entry["last_modified"].timestamp())
        except _OBSTORE_ERRORS as error:
            raise self._unusable(error) from None

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except _OBSTORE_ERRORS as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(f"{self._name} cannot be used now: {_describe_error(error)}")


async def open_bucket(address: str, *, endpoint: str = "") -> ObjectBlobs:
    """Open the blobs at `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. `endpoint`: the URL of
    the server, if it is not the provider's usual one. Raises CellError if the bucket cannot be reached or written."""
    client: ClientConfig = {**_CLIENT, "allow_http": True} if endpoint.startswith("http://") else _CLIENT
    kinds: dict[str, Callable[[], ObjectStore]] = {
        "s3": lambda: S3Store.from_url(
            address, config={"endpoint": endpoint} if endpoint else {}, client_options=client, retry_config=_RETRY
        ),
        "gs": lambda: GCSStore.from_url(
            address, config={"base_url": endpoint} if endpoint else {}, client_options=client, retry_config=_RETRY
        ),
        "az": lambda: AzureStore.from_url(
            address, config={"endpoint": endpoint} if endpoint else {}, client_options=client, retry_config=_RETRY
        ),
    }
    try:
        store = kinds[urlsplit(address).scheme]()
    except (BaseError, ValueError) as error:
        raise CellError(f"the blobs cannot be kept in {address}: {_describe_error(error)}") from None
    blobs = ObjectBlobs(store, address)
    try:
        await blobs.check()
    except CellError:
        await blobs.close()
        raise
    return blobs


class _Turn:
    """Limits how many uploads send to the bucket at once: each upload has a `_Turn`, which acquires the shared
    semaphore `places` to send a part, and releases it while it waits for bytes from its client."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._is_taken = False
        self._is_over = False

    async def take(self) -> None:
        await self._places.acquire()
        self._is_taken = True
        if self._is_over:
            # The upload has failed, and only this call was still waiting.
            self.give_back()
            raise StoreError("the upload has ended")

    def give_back(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._places.release()

    def end(self) -> None:
        self._is_over = True
        self.give_back()


class _Parts:
    def __init__(self, data: AsyncIterator[bytes], limit_bytes: int, part_bytes: int) -> None:
        self.size = 0
        self.digest = hashlib.sha256()
        self.failure: Exception | None = None
        """Why the sender's bytes ended early."""
        self._data = data
        self._limit = limit_bytes
        self._part_bytes = part_bytes
        self._buffer = bytearray()

    async def next_part(self) -> bytes:
        """Return the next part; the last is shorter, or empty. Raises TooLargeError if the upload exceeds its limit."""
        while len(self._buffer) < self._part_bytes:
            piece = await anext(self._data, None)
            if piece is None:
                break
            self.size += len(piece)
            if self.size > self._limit:
                raise TooLargeError(f"larger than the limit of {self._limit} bytes")
            self._buffer += piece
        part = bytes(self._buffer[: self._part_bytes])
        del self._buffer[: self._part_bytes]
        await asyncio.to_thread(self.digest.update, part)
        return part

    async def all_from(self, first: bytes, turn: _Turn) -> AsyncIterator[bytes]:
        part = first
        try:
            while part:
                await turn.take()
                yield part
                is_last = len(part) < self._part_bytes
                if not is_last:
                    turn.give_back()
                part = b"" if is_last else await self.next_part()
        except Exception as error:
            self.failure = error
            raise


class _Ranges(io.RawIOBase):
    """An object in a bucket as a seekable file. Each read fetches a range of bytes and blocks."""

    def __init__(self, fetch: Callable[[int, int], memoryview], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"negative position {start + offset}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # only memoryviews come
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        buffer[:length] = self._fetch(self._at, length)
        self._at += length
        return length


_TRIES = re.compile(r" in [0-9.]+[mµn]?s(, after [0-9]+ retries, max_retries: [0-9]+, retry_timeout: \w+)?")
_CODE = re.compile(r"<Code>(\w+)</Code>|<Message>([^<]{1,200})</Message>")
_ADVICE = {
    "FileNotFoundError": "there is no such bucket; create it, or correct the address",
    "PermissionDeniedError": "the credentials may not do this; check the provider's variables and the bucket's policy",
    "UnauthenticatedError": "the credentials are not accepted; check the provider's environment variables",
    "UnknownConfigurationKeyError": "correct the provider's environment variables",
}


_METADATA_SERVER = "169.254.169.254"
"""The address that a provider's library asks for credentials when none are configured."""


def _describe_error(error: Exception) -> str:
    """Describe an error of obstore, whose messages have many lines, in one line: what happened and what to do."""
    message = str(error).partition("\n\nDebug source:")[0]
    if _METADATA_SERVER in message or "must be specified" in message:
        return (
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
        )
    codes = ", ".join(code or text for code, text in _CODE.findall(message))
    first = _TRIES.sub("", message.partition("<?xml")[0]).strip().rstrip(":")
    advice = _ADVICE.get(type(error).__name__, "check that the address and the endpoint are right and can be reached")
    return f"{' '.join(first.split())[:300]}{f' ({codes})' if codes else ''}; {advice}"
