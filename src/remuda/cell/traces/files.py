"""Traces (job logs) as plain files, one per job, so that logs never wait for writes of the database.

A live trace is `<id>.log`. When its job ends it is sealed (complete, on disk, no more output): the file is then
`archive/<id>.log`, until `remuda.cell.traces.archive` makes it a blob. The file's length is the trace's size: a process
that dies during an append leaves at worst bytes that the runner sends again. Traces that end at the same time are
sealed together: their files are synced, renamed, so that no process adds to them any more, and the folder is synced.
Only what waits for the disk runs in a thread: short system calls, such as appends to the page cache, cost less than a
switch of threads. Paths are strings, because a `Path` costs as much as its system call."""

import asyncio
import contextlib
import os
import zlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from remuda.cell.errors import StoreError
from remuda.cell.store.write_batching import WriteBatcher
from remuda.lib.append_only import Appended, append, overlap
from remuda.lib.files import is_sync_enabled
from remuda.model.job import JobId

_PIECE_BYTES = 256 * 1024
_OPEN_FILES = 64
"""Live traces that are kept open; others are opened again at the next append."""
_SEALING_LANES = 2
"""While one thread waits for the disk, the other seals the next traces."""


class FileTraces:
    """The job logs in one folder that are not archived as blobs yet: live, or sealed (complete, no more output)."""

    def __init__(self, folder: Path) -> None:
        archive = folder / "archive"
        archive.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = str(folder)
        self._archive = str(archive)
        self._seals: WriteBatcher[JobId, tuple[int, str] | OSError] = WriteBatcher(self._seal_all, lanes=_SEALING_LANES)
        self._waiting = ThreadPoolExecutor(_SEALING_LANES, thread_name_prefix="sealing of traces")
        self._open: OrderedDict[JobId, int] = OrderedDict()
        self._sealing: dict[JobId, asyncio.Event] = {}

    def close(self) -> None:
        """Close the open files. No bytes are lost, because none are buffered in this process."""
        self._waiting.shutdown(wait=False)
        while self._open:
            os.close(self._open.popitem()[1])

    async def size(self, job_id: JobId) -> int:
        return self.size_here(job_id) or 0

    def size_here(self, job_id: JobId) -> int | None:
        """Return a trace's size in bytes; None if it is not in this folder (archived, or the job has none)."""
        try:
            file = self._open.get(job_id)
            if file is not None and (size := self._live_size(job_id, file)) is not None:
                return size
            file = self._reader(job_id)
            if file is None:
                return None
            try:
                return os.fstat(file).st_size
            finally:
                os.close(file)
        except OSError as error:
            raise _store_error(error) from error

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        try:
            live = self._live_file(job_id)
            if live is not None:
                return append(*live, start, data)
        except OSError as error:
            raise _store_error(error) from error
        return await self.compare(job_id, start, data)

    def append_now(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        try:
            live = self._live_file(job_id)
            appended = None if live is None else append(*live, start, data)
        except OSError as error:
            raise _store_error(error) from error
        return appended if appended is not None and appended.taken else None

    async def compare(self, job_id: JobId, start: int, data: bytes) -> Appended:
        return self.compare_here(job_id, start, data) or Appended(taken=start == 0 and not data, size=0)

    def compare_here(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        """Return whether `data` equals the trace from `start` on (`taken`); None if it is not in this folder."""
        try:
            file = self._reader(job_id)
            if file is None:
                return None
            try:
                size = os.fstat(file).st_size
                common = overlap(file, size, start, data)
            finally:
                os.close(file)
        except OSError as error:
            raise _store_error(error) from error
        return Appended(taken=common == len(data), size=size)

    async def read(self, job_id: JobId, start: int = 0) -> AsyncGenerator[bytes, None]:
        pieces = self.read_here(job_id, start)
        if pieces is not None:
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    yield piece

    def read_here(self, job_id: JobId, start: int) -> AsyncGenerator[bytes, None] | None:
        """Iterate over the bytes from `start` on, even if the file is moved meanwhile; None if it is not here."""
        try:
            file = self._reader(job_id)
        except OSError as error:
            raise _store_error(error) from error
        return None if file is None else self._pieces(file, start)

    async def _pieces(self, file: int, start: int) -> AsyncGenerator[bytes, None]:
        try:
            while piece := await asyncio.to_thread(os.pread, file, _PIECE_BYTES, start):
                start += len(piece)
                yield piece
        except OSError as error:
            raise _store_error(error) from error
        finally:
            os.close(file)

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        while other := self._sealing.get(job_id):
            await other.wait()
        done = self._sealing[job_id] = asyncio.Event()
        try:
            sealed = None
            while sealed is None:  # the task that sealed for all may have been cancelled
                sealed = await self._seals.submit(job_id)
            if isinstance(sealed, OSError):
                raise sealed
            return sealed
        except OSError as error:
            raise _store_error(error) from error
        finally:
            del self._sealing[job_id]
            done.set()

    async def _seal_all(self, job_ids: Sequence[JobId]) -> Sequence[tuple[int, str] | OSError]:
        """Seal traces (no more output): sync their files and move them to `archive`. Returns size and checksum, or the
        error, of each. The bytes and names of all files are on disk before this returns."""
        files: list[int] = []
        try:
            live = [self._open_live(job_id, files) for job_id in job_ids]
            # A file in the archive counts as whole, so its bytes must be on the disk before its name.
            sizes = {file: os.fstat(file).st_size for file in files}
            if is_sync_enabled() and files:
                await self._sync(files, files, ())
            moved = [self._move_to_archive(job_id, file, files) for job_id, file in zip(job_ids, live, strict=True)]
            long = [file for file in files if os.fstat(file).st_size > _PIECE_BYTES]
            unsettled = [file for file in files if os.fstat(file).st_size != sizes.get(file)]
            if is_sync_enabled():
                files.append(os.open(self._archive, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                unsettled.append(files[-1])
            elif not long:
                return [trace if isinstance(trace, OSError) else _sum(trace) for trace in moved]
            sums = await self._sync(files, unsettled, long)
            return [trace if isinstance(trace, OSError) else sums.get(trace) or _sum(trace) for trace in moved]
        except OSError as error:
            return [error] * len(job_ids)
        finally:
            _close(files)

    async def _sync(
        self, files: list[int], unsettled: Sequence[int], long: Sequence[int]
    ) -> dict[int, tuple[int, str]]:
        """In a thread, sync the files in `unsettled`, and compute size and checksum of each file in `long`. Returns
        these by file descriptor. `files` has all open descriptors, which the caller closes. But if this call is
        cancelled while the thread works, it empties `files`, and the thread closes them at its end."""
        work = self._waiting.submit(_sync_and_sum, tuple(unsettled) if is_sync_enabled() else (), tuple(long))
        try:
            return await asyncio.wrap_future(work)
        finally:
            if not work.done():
                unclosed = tuple(files)
                files.clear()
                work.add_done_callback(lambda _: _close(unclosed))

    def _open_live(self, job_id: JobId, files: list[int]) -> int | OSError | None:
        """Open the live trace of a job, add the descriptor to `files`, which the caller closes, and return it; None if
        there is no live trace. An OSError is returned, not raised, so that the other traces can still be sealed."""
        try:
            file = self._open.pop(job_id, None)
            if file is not None:
                files.append(file)
                if self._live_size(job_id, file) is not None:
                    return file
            files.append(os.open(self._live_path(job_id), os.O_RDWR | os.O_CLOEXEC))
            return files[-1]
        except FileNotFoundError:
            return None
        except OSError as error:
            return error

    def _move_to_archive(self, job_id: JobId, live: int | OSError | None, files: list[int]) -> int | OSError:
        """Move the file of a live trace (`live`: the result of `_open_live`) to the folder `archive`, and return its
        descriptor, which is in `files` for the caller to close. If there is no live trace, open the file in `archive`,
        or create an empty one. An OSError is returned, not raised, so that other traces can still be sealed."""
        if isinstance(live, OSError):
            return live
        archived = self._archive_path(job_id)
        try:
            if live is not None:
                with contextlib.suppress(FileNotFoundError):
                    if not _has_at_least(archived, os.fstat(live).st_size):
                        os.rename(self._live_path(job_id), archived)
                        return live
                    # Another process was about to write when this one sealed.
                    os.unlink(self._live_path(job_id))
            # Sealed before, or nothing was logged. A live file is never created here: it would replace the archive.
            files.append(os.open(archived, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            return files[-1]
        except OSError as error:
            return error

    async def reopen(self, job_id: JobId) -> None:
        if job_id in self._sealing:
            return
        try:
            os.rename(self._archive_path(job_id), self._live_path(job_id))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _store_error(error) from error

    async def ids(self) -> Sequence[JobId]:
        def names() -> list[str]:
            return [*os.listdir(self._archive), *os.listdir(self._folder)]

        try:
            ids = [name.removesuffix(".log") for name in await asyncio.to_thread(names) if name.endswith(".log")]
        except OSError as error:
            raise _store_error(error) from error
        return [JobId(int(name)) for name in dict.fromkeys(ids) if name.isdigit()]

    def find_sealed_file(self, job_id: JobId) -> Path | None:
        """Return the file of a sealed (complete) trace; None if it is live, being sealed, or not in this folder."""
        if os.path.exists(self._live_path(job_id)) or not self._is_sealed(job_id) or job_id in self._sealing:
            return None
        return Path(self._archive_path(job_id))

    async def remove(self, job_id: JobId) -> None:
        file = self._open.pop(job_id, None)
        if file is not None:
            os.close(file)
        for path in (self._live_path(job_id), self._archive_path(job_id)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _live_path(self, job_id: JobId) -> str:
        return f"{self._folder}/{job_id:d}.log"

    def _archive_path(self, job_id: JobId) -> str:
        return f"{self._archive}/{job_id:d}.log"

    def _is_sealed(self, job_id: JobId) -> bool:
        return job_id in self._sealing or os.path.exists(self._archive_path(job_id))

    def _reader(self, job_id: JobId) -> int | None:
        """Open a trace for reading and return the descriptor; None if the trace is not in this folder. The path in
        `archive` is tried before and after the live path, because another process may move the file there meanwhile."""
        for path in (self._archive_path(job_id), self._live_path(job_id), self._archive_path(job_id)):
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return None

    def _live_size(self, job_id: JobId, file: int) -> int | None:
        """Return the size of the live trace open as `file`; None if another process moved or replaced that file."""
        try:
            live, opened = os.stat(self._live_path(job_id)), os.fstat(file)
        except FileNotFoundError:
            return None
        return opened.st_size if os.path.samestat(live, opened) else None

    def _live_file(self, job_id: JobId) -> tuple[int, int] | None:
        """Open or create the file of a live trace, and keep it open for later calls. Returns its descriptor and size;
        None if the trace is sealed (accepts no more output) or is just being sealed."""
        file = None if job_id in self._sealing else self._open.get(job_id)
        if file is None:
            if self._is_sealed(job_id):
                return None
            file = os.open(self._live_path(job_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if self._is_sealed(job_id):
                os.close(file)
                return None
            self._open[job_id] = file
            if len(self._open) > _OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
            return file, os.fstat(file).st_size
        size = self._live_size(job_id, file)
        if size is None:
            # Another process has sealed it, and perhaps archived the file that is still open here.
            os.close(self._open.pop(job_id))
            return None
        self._open.move_to_end(job_id)
        return file, size


def _has_at_least(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size >= size
    except FileNotFoundError:
        return False


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _sync_and_sum(files: Sequence[int], long: Sequence[int]) -> dict[int, tuple[int, str]]:
    for file in files:
        os.fsync(file)
    return {file: _sum(file) for file in long}


def _sum(file: int) -> tuple[int, str]:
    checksum = size = 0
    while piece := os.pread(file, _PIECE_BYTES, size):
        checksum = zlib.crc32(piece, checksum)
        size += len(piece)
    return size, f"crc32:{checksum:08x}"


def _store_error(error: OSError) -> StoreError:
    return StoreError(f"cannot read or write a trace: {error.strerror or error}; check the disk of the data folder")
