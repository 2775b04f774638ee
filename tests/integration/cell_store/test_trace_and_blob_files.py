"""Files of traces and blobs: after a restart, shared by several processes, on a full disk, after a crash; sealing."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.cell.blobs.folder import FolderBlobs
from remuda.cell.core.jobs.blob_keys import trace_key
from remuda.cell.errors import InvalidError, StoreError
from remuda.cell.traces.archive import ArchivedTraces
from remuda.cell.traces.files import FileTraces
from remuda.model.job import JobId


async def test_a_new_process_goes_on_where_the_old_one_stopped(tmp_path: Path) -> None:
    old = FileTraces(tmp_path)
    await old.append(JobId(1), 0, b"hello")
    new = FileTraces(tmp_path)
    assert (await new.append(JobId(1), 3, b"lo world")).taken
    assert await new.seal(JobId(1)) == (11, "crc32:0d4a1185")
    assert (tmp_path / "archive" / "1.log").read_bytes() == b"hello world"
    assert not (tmp_path / "1.log").exists()
    assert await FileTraces(tmp_path).size(JobId(1)) == 11
    old.close()


def open_traces(folder: Path) -> ArchivedTraces:
    return ArchivedTraces(FileTraces(folder / "traces"), FolderBlobs(folder / "blobs"))


async def test_a_trace_that_another_process_archived_is_not_written_to(tmp_path: Path) -> None:
    slow, quick = open_traces(tmp_path), open_traces(tmp_path)
    assert (await slow.append(JobId(1), 0, b"hello")).taken
    await quick.seal(JobId(1))
    await quick.archive(JobId(1))
    late = await slow.append(JobId(1), 5, b" world")
    assert (late.taken, late.size) == (False, 5)
    assert b"".join([piece async for piece in slow.read(JobId(1))]) == b"hello"


async def test_a_trace_that_another_process_archived_can_be_sealed_again(tmp_path: Path) -> None:
    slow, quick = open_traces(tmp_path), open_traces(tmp_path)
    await slow.append(JobId(1), 0, b"hello")
    sealed = await quick.seal(JobId(1))
    await quick.archive(JobId(1))
    assert await slow.seal(JobId(1)) == sealed
    assert await slow.list_unarchived() == []


async def test_a_full_disk_removes_no_byte_of_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = FileTraces(tmp_path)
    await traces.append(JobId(1), 0, b"hello")

    def fail_write(file: int, data: memoryview, offset: int) -> int:
        with (tmp_path / "1.log").open("ab") as log:
            log.write(b" world")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("remuda.cell.traces.files.os.pwrite", fail_write)
        with pytest.raises(StoreError):
            await traces.append(JobId(1), 5, b" world")
    assert await traces.size(JobId(1)) == 11
    traces.close()


async def test_few_files_stay_open(tmp_path: Path) -> None:
    traces = FileTraces(tmp_path)
    for number in range(1, 301):
        await traces.append(JobId(number), 0, b"x")
    assert len(traces._open) <= 64
    traces.close()


async def test_a_reader_of_a_live_trace_is_not_disturbed_by_its_seal(tmp_path: Path) -> None:
    traces = FileTraces(tmp_path)
    await traces.append(JobId(1), 0, b"x" * 300_000)
    reader = aiter(traces.read(JobId(1)))
    first = await anext(reader)
    await traces.seal(JobId(1))
    assert len(first) + sum([len(piece) async for piece in reader]) == 300_000


@pytest.mark.parametrize("is_archived", [False, True])
async def test_a_reader_that_stops_leaves_no_file_open(tmp_path: Path, is_archived: bool) -> None:
    traces = open_traces(tmp_path)
    await traces.append(JobId(1), 0, b"x" * 3_000_000)
    await traces.seal(JobId(1))
    if is_archived:
        await traces.archive(JobId(1))
    before = open_files(tmp_path)
    reader = traces.read(JobId(1))
    await anext(reader)
    assert open_files(tmp_path) != before
    await reader.aclose()
    assert open_files(tmp_path) == before


def open_files(folder: Path) -> list[str]:
    """The files of the folder that this process has open."""
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(link for link in links if link.startswith(str(folder)))


async def pieces() -> AsyncIterator[bytes]:
    yield b"x"


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../up", "a/../../b", "a//b", ".hidden", "a/.", "a\0b", "ä", "a" * 600]
)
async def test_invalid_keys_are_refused(tmp_path: Path, key: str) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    with pytest.raises(InvalidError):
        await blobs.put(key, pieces(), limit_bytes=10)
    with pytest.raises(InvalidError):
        await blobs.size(key)


def test_old_incoming_files_are_removed_at_the_start(tmp_path: Path) -> None:
    FolderBlobs(tmp_path)
    for name in ("half", "growing"):
        (tmp_path / "incoming" / name).write_bytes(b"x")
    os.utime(tmp_path / "incoming" / "half", (1_700_000_000, 1_700_000_000))
    FolderBlobs(tmp_path)
    assert [path.name for path in (tmp_path / "incoming").iterdir()] == ["growing"]


async def test_a_removed_blob_leaves_no_empty_folder(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    for name in ("a", "b"):
        await blobs.put(f"artifacts/7/{name}", pieces(), limit_bytes=10)
    await blobs.remove("artifacts/7/a")
    assert (tmp_path / "kept" / "artifacts" / "7").exists()
    await blobs.remove("artifacts/7/b")
    assert not (tmp_path / "kept" / "artifacts" / "7").exists()


async def test_a_blob_that_cannot_be_removed_raises_a_store_error(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    await blobs.put("artifacts/7/a", pieces(), limit_bytes=10)
    with pytest.raises(StoreError, match="Is a directory"):
        await blobs.remove("artifacts/7")


async def test_a_trace_that_a_crash_left_in_both_places_is_archived_once_more(tmp_path: Path) -> None:
    files, blobs = FileTraces(tmp_path / "traces"), FolderBlobs(tmp_path / "blobs")
    traces = ArchivedTraces(files, blobs)
    await traces.append(JobId(1), 0, b"hello")
    await traces.seal(JobId(1))
    await blobs.put(trace_key(JobId(1)), pieces(), limit_bytes=10)
    assert await traces.size(JobId(1)) == 5
    await traces.archive(JobId(1))
    assert await traces.list_unarchived() == []
    assert [piece async for piece in traces.read(JobId(1), 1)] == [b"ello"]
    await files.append(JobId(1), 0, b"he")
    await files.seal(JobId(1))
    await traces.archive(JobId(1))
    assert await traces.list_unarchived() == []
    assert [piece async for piece in traces.read(JobId(1))] == [b"hello"]


async def test_take_moves_a_file_from_another_file_system(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    with tempfile.NamedTemporaryFile(dir="/dev/shm", delete=False) as file:
        file.write(b"hello")
    await blobs.take("traces/0/1.log", Path(file.name))
    assert not Path(file.name).exists()
    assert [piece async for piece in blobs.read("traces/0/1.log")] == [b"hello"]


async def test_processes_that_share_a_folder_see_the_same_traces(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    first, second = (ArchivedTraces(FileTraces(tmp_path / "traces"), blobs) for _ in range(2))
    assert (await first.append(JobId(1), 0, b"hello")).taken
    assert (await second.append(JobId(1), 0, b"hello world")).taken
    assert (await first.append(JobId(1), 6, b"world!")).taken
    assert await second.seal(JobId(1)) == await first.seal(JobId(1))
    answer = await first.append(JobId(1), 12, b"more")
    assert (answer.taken, answer.size) == (False, 12)
    async with asyncio.TaskGroup() as group:
        for traces in (first, second, first, second):
            group.create_task(traces.archive(JobId(1)))
    assert [await traces.list_unarchived() for traces in (first, second)] == [[], []]
    for traces in (first, second):
        assert b"".join([piece async for piece in traces.read(JobId(1))]) == b"hello world!"


async def test_an_empty_live_file_of_another_process_does_not_replace_a_sealed_trace(tmp_path: Path) -> None:
    traces = FileTraces(tmp_path)
    await traces.append(JobId(1), 0, b"hello")
    sealed = await traces.seal(JobId(1))
    (tmp_path / "1.log").touch()
    assert await traces.size(JobId(1)) == 5
    assert await traces.seal(JobId(1)) == sealed
    assert not (tmp_path / "1.log").exists()


async def test_bytes_are_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def recording(name: str) -> Any:
        call = getattr(os, name)

        def record_and_call(*arguments: Any) -> Any:
            subject = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else str(arguments[0])
            calls.append(f"{name} {Path(subject).name}")
            return call(*arguments)

        return record_and_call

    monkeypatch.setattr("remuda.lib.files._Sync.is_enabled", True)
    for name in ("fsync", "rename"):
        monkeypatch.setattr(os, name, recording(name))
    traces = FileTraces(tmp_path)
    try:
        await traces.append(JobId(7), 0, b"a line\n")
        assert (await traces.seal(JobId(7)))[0] == 7
        assert calls == ["fsync 7.log", "rename 7.log", "fsync archive"]
        assert await traces.size(JobId(7)) == 7
    finally:
        traces.close()
