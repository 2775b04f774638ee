"""Blobs in a bucket: S3 and what speaks it, Google Cloud Storage, Azure, through `obstore`.

Decided here: how large the parts of an upload and of a download are, so that neither ever lies in memory as a whole;
how long a bucket may take to answer; and what a person is told when it does not. Where the bucket is and who may use
it is said by the settings and by each provider's usual environment variables. `remuda.cell.service` opens it.

A download is a row of ranged reads and not one long answer: a slow reader then holds no connection of the bucket's,
and no time limit ends it. An upload that breaks off is taken back; one whose process dies leaves parts that the
provider removes, if the bucket has a rule for incomplete uploads.
"""

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
"""So many have parts on their way to the bucket, some twenty mebibytes each; more of them wait for their turn. One that
waits for its sender has no turn: it gathers its next part, which is all that it has in memory."""
_MOST_PARTS = 10_000
"""What S3 allows for one upload."""
_READ_BYTES = 4 * _MEBIBYTE
_AHEAD_BYTES = 256 * 1024
"""What is fetched at least when an archive is read here and there."""
_LIST_BLOBS = 1000

_LINGER_SECONDS = 0.1
"""A thread of obstore's that has just given an answer still needs the interpreter for a moment: if that is gone then,
the process ends with an abort."""

_CLIENT: "ClientConfig" = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
_RETRY: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_OURS = (BaseError, FileNotFoundError)
"""What obstore raises. An error of whoever sends the bytes passes through as it is, and may be an OSError, too."""


class ObjectBlobs:
    """Blobs in a bucket; the key is the object's name below the prefix of the address."""

    def __init__(self, store: "ObjectStore", name: str) -> None:
        self._store = store
        self._name = name
        """How the bucket is called in errors."""
        self._uploads = asyncio.Semaphore(_UPLOADS_AT_ONCE)

    async def close(self) -> None:
        """Let go of the bucket."""
        await asyncio.sleep(_LINGER_SECONDS)

    async def check(self) -> None:
        """Write, read and remove something small; CellError says what is in the way."""
        probe = f"probe/{uuid.uuid4().hex}"
        try:
            await obstore.put_async(self._store, probe, b"remuda")
            await obstore.get_range_async(self._store, probe, start=0, length=6)
            await obstore.delete_async(self._store, probe)
        except _OURS as error:
            raise CellError(f"the blobs cannot be kept in {self._name}: {_words(error)}") from None

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        part_bytes = max(_PART_BYTES, -(-limit_bytes // _MOST_PARTS))
        parts = _Parts(data, limit_bytes, part_bytes)
        first = await parts.next_part()
        if len(first) < part_bytes:
            await self._do(obstore.put_async(self._store, check_key(key), first, use_multipart=False))
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
            except _OURS as error:
                if parts.failure is not None:
                    raise parts.failure from None
                raise self._unusable(error) from None
            finally:
                turn.end()
        return parts.size, parts.digest.hexdigest()

    async def take(self, key: str, file: Path) -> None:
        with file.open("rb") as content:
            await self._do(
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
            piece = await self._do(obstore.get_range_async(self._store, key, start=start, length=length))
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
            except _OURS as error:
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
                for one in page:
                    yield StoredBlob(key=one["path"], modified_at=one["last_modified"].timestamp())
        except _OURS as error:
            raise self._unusable(error) from None

    async def _do(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except _OURS as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> StoreError:
        return StoreError(f"{self._name} cannot be used now: {_words(error)}")


async def open_bucket(address: str, *, endpoint: str = "") -> ObjectBlobs:
    """The blobs at `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    CellError when they cannot be reached or written.
    """
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
        raise CellError(f"the blobs cannot be kept in {address}: {_words(error)}") from None
    blobs = ObjectBlobs(store, address)
    try:
        await blobs.check()
    except CellError:
        await blobs.close()
        raise
    return blobs


class _Turn:
    """An upload's place among those that send, which it has only while it has something to send."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._is_taken = False
        self._is_over = False

    async def take(self) -> None:
        await self._places.acquire()
        self._is_taken = True
        if self._is_over:
            # Whoever asked for the next part is gone, and only this call was left.
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
    """An upload cut into parts, measured and summed up on its way."""

    def __init__(self, data: AsyncIterator[bytes], limit_bytes: int, part_bytes: int) -> None:
        self.size = 0
        self.digest = hashlib.sha256()
        self.failure: Exception | None = None
        """Why the bytes ended too soon."""
        self._data = data
        self._limit = limit_bytes
        self._part_bytes = part_bytes
        self._waiting = bytearray()

    async def next_part(self) -> bytes:
        """The next part; a shorter one, or none, is the last."""
        while len(self._waiting) < self._part_bytes:
            piece = await anext(self._data, None)
            if piece is None:
                break
            self.size += len(piece)
            if self.size > self._limit:
                raise TooLargeError(f"more than the {self._limit} bytes that are allowed")
            self._waiting += piece
        part = bytes(self._waiting[: self._part_bytes])
        del self._waiting[: self._part_bytes]
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
    """An object as a file that is read at any place; reading blocks."""

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
            raise ValueError(f"there is no place {start + offset} in a file")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # any buffer may come, always this one does
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
"""Whom a provider's library asks for credentials when it was given none."""


def _words(error: Exception) -> str:
    """What happened and what to do, in one line: obstore tells the whole story of an error, and all its fields."""
    story = str(error).partition("\n\nDebug source:")[0]
    if _METADATA_SERVER in story or "must be specified" in story:
        return (
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
        )
    said = ", ".join(code or message for code, message in _CODE.findall(story))
    first = _TRIES.sub("", story.partition("<?xml")[0]).strip().rstrip(":")
    advice = _ADVICE.get(type(error).__name__, "check that the address and the endpoint are right and can be reached")
    return f"{' '.join(first.split())[:300]}{f' ({said})' if said else ''}; {advice}"
