"""Measuring the disk usage of jobs, and finding the job that has filled a disk."""

import itertools
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from remuda.steps.job_files.disk_usage import (
    DiskSearch,
    DiskUse,
    choose_filler,
    count_written_bytes,
    explain_stop,
    measure,
)


@pytest.mark.parametrize(
    ("uses", "needs_files", "filler"),
    [
        ({}, False, None),
        ({"a": DiskUse(bytes=9), "b": DiskUse(bytes=8)}, False, None),
        ({"a": DiskUse(bytes=10), "b": DiskUse(bytes=60)}, False, "b"),
        ({"a": DiskUse(bytes=60, files=1), "b": DiskUse(bytes=10, files=500)}, False, "a"),
        ({"a": DiskUse(bytes=60, files=1), "b": DiskUse(bytes=10, files=500)}, True, "b"),
        # Written bytes count only if the existing files do not identify a job.
        ({"a": DiskUse(bytes=9, written=20), "b": DiskUse(bytes=2, written=90)}, False, "b"),
        ({"a": DiskUse(bytes=10, written=20), "b": DiskUse(bytes=2, written=90)}, False, "a"),
        ({"a": DiskUse(bytes=9, written=9), "b": DiskUse(bytes=2, written=8)}, False, None),
        ({"a": DiskUse(written=30), "b": DiskUse(written=90, elsewhere=85)}, False, "a"),
        ({"a": DiskUse(written=9), "b": DiskUse(written=90, elsewhere=85)}, False, None),
        ({"a": DiskUse(bytes=9, files=9, written=1000)}, True, None),
    ],
)
def test_choice_of_job_that_filled_the_disk(uses: dict[str, DiskUse], needs_files: bool, filler: str | None) -> None:
    assert choose_filler(uses, disk_bytes=100, disk_files=1000, needs_files=needs_files) == filler


def test_the_message_for_a_stopped_job() -> None:
    text = "the job has filled the disk of its machine: it has put 2 KiB there in 3 files"
    assert explain_stop(DiskUse(bytes=2048, files=3, written=1024)) == text
    assert explain_stop(DiskUse(bytes=2048, files=3, written=9 * 1024)) == f"{text}, and has written 9 KiB in all"


def measure_one(
    paths: Iterable[Path], *, since: float, disk: Path, processes: Iterable[int] = (), seconds: float = 30.0
) -> DiskUse:
    return measure({"a": DiskSearch(paths=paths, since=since, processes=processes)}, disk, seconds)["a"]


def test_only_files_written_since_the_start_count(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(bytes(100_000))
    started_at = (tmp_path / "a/b/file").stat().st_ctime
    use = measure_one([tmp_path / "a", tmp_path / "none"], since=started_at, disk=tmp_path)
    assert 100_000 <= use.bytes < 200_000
    assert use.elsewhere == 0
    assert measure_one([tmp_path / "a"], since=started_at + 3600, disk=tmp_path) == DiskUse()
    other = measure_one([tmp_path / "a"], since=started_at, disk=Path("/proc"))
    assert (other.bytes, other.files, other.elsewhere) == (0, 0, use.bytes)


def test_a_file_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(bytes(100_000))
    started_at = (tmp_path / "a/file").stat().st_ctime
    for number in range(5):
        os.link(tmp_path / "a/file", tmp_path / f"a/{number}")
    (tmp_path / "a/link").symlink_to(tmp_path / "a")
    use = measure_one([tmp_path / "a", tmp_path / "a", tmp_path / "a/file"], since=started_at, disk=tmp_path)
    assert 100_000 <= use.bytes < 200_000


def test_a_file_without_a_name_counts_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    started_at = tmp_path.stat().st_ctime
    # Another process, because pytest has open files without names, too. The file is open twice and counts once.
    script = f"exec 3>{path} 4>&3; head -c 100000 /dev/zero >&3; echo; read line"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert measure_one([], since=started_at, disk=tmp_path, processes=[process.pid]).bytes == 0
        path.unlink()
        use = measure_one([], since=started_at, disk=tmp_path, processes=[process.pid])
        process.communicate(b"\n")
    assert 100_000 <= use.bytes < 200_000
    assert use.files == 1


def test_bytes_written_by_children_count(tmp_path: Path) -> None:
    script = f"dd if=/dev/zero of={tmp_path}/file bs=1M count=4 conv=fsync 2>/dev/null; echo; read line"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        written = count_written_bytes([process.pid, 2**22 + 1])
        process.communicate(b"\n")
    if not written:
        pytest.skip("writes to the disk of this test are not counted")
    assert written >= 4 * 1024**2


def test_a_job_does_not_use_up_the_time_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100_000))
    endless = DiskSearch(paths=itertools.repeat(None), since=0)
    open_files = DiskSearch(paths=[], since=0, processes=itertools.repeat(os.getpid()))
    small = DiskSearch(paths=[tmp_path], since=0)
    started_at = time.monotonic()
    uses = measure({"a": endless, "b": open_files, "c": small, "d": endless}, tmp_path, 1.0)
    assert time.monotonic() - started_at < 20
    assert uses["c"] == measure_one([tmp_path], since=0, disk=tmp_path)
    assert uses["c"].bytes >= 100_000
    assert uses["a"].bytes == 0


def test_measuring_a_folder_with_very_many_files_ends_early(tmp_path: Path) -> None:
    for number in range(5000):
        (tmp_path / str(number)).touch()
    assert measure_one([tmp_path], since=0, disk=tmp_path).files == 5001
    assert measure_one([tmp_path], since=0, disk=tmp_path, seconds=0.0001).files < 5001
