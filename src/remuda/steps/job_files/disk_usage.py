"""Finds the job that has filled a disk, by measuring how much each job has put there.

Three things certainly belong to a job: files in its own folders, files of its own user in shared folders such as /tmp,
and deleted files that its processes still hold open or mapped. If these identify no job, the bytes that the jobs'
processes have written are compared, although some may have been removed since, or be on another disk."""

import os
import stat
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.steps.job_files.disk import LEAST_FILES
from remuda.steps.process.usage import format_bytes

LEAST_SHARE = 10
"""A job with less than one part in this many of a disk has not filled it: 10 means a tenth."""
MEASURE_SECONDS = 30.0
"""Time limit for measuring all jobs together, because jobs that write wait meanwhile."""
_TURN = 100
"""Number of files of one job that are counted before the next job's files are."""
_UNNAMED = " (deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    bytes: int = 0
    files: int = 0
    written: int = 0
    """Bytes that it has written to this disk or another one."""
    elsewhere: int = 0
    """Bytes that it has in its folders on other disks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSearch:
    paths: Iterable[Path | str | None]
    """Files and folders. None: nothing was found yet; it gives the caller a chance to interrupt the search."""
    since: float
    """When the job began. Files that were changed before are not its own."""
    processes: Iterable[int] = ()
    written: int = 0
    """Bytes that the job is known to have written, also by processes that have ended."""


def choose_filler(uses: Mapping[str, DiskUse], *, disk_bytes: int, disk_files: int, needs_files: bool) -> str | None:
    """Return the id of the job that has filled the disk: the one with the most bytes there (if `needs_files`, the most
    files), if that is at least a tenth of the disk. If no job has that many bytes, take the job whose processes have
    written the most, if that is at least a tenth. Otherwise None."""
    if needs_files:
        return _largest({job: use.files for job, use in uses.items()}, disk_files)
    filler = _largest({job: use.bytes for job, use in uses.items()}, disk_bytes)
    if filler is None:
        filler = _largest({job: use.written - use.elsewhere for job, use in uses.items()}, disk_bytes)
    return filler


def _largest(shares: Mapping[str, int], whole: int) -> str | None:
    most = max(shares, key=shares.__getitem__, default=None)
    return most if most is not None and shares[most] * LEAST_SHARE >= whole > 0 else None


def explain_stop(use: DiskUse) -> str:
    put = f"{format_bytes(use.bytes)} there in {use.files} files"
    text = f"the job has filled the disk of its machine: it has put {put}"
    more = use.written - use.elsewhere
    return f"{text}, and has written {format_bytes(more)} in all" if more > use.bytes else text


def lacks_files(folder: Path) -> bool:
    """True if the disk of `folder` is full because it has no free inodes, although it may have free bytes."""
    filesystem = os.statvfs(folder)
    return filesystem.f_files > 0 and filesystem.f_ffree < LEAST_FILES


def measure(jobs: Mapping[str, DiskSearch], disk: Path, seconds: float = MEASURE_SECONDS) -> dict[str, DiskUse]:
    """Return how much each job has put on the disk that holds the path `disk`. `jobs`: by job id, where to search for
    its files. After `seconds` the search stops, and what was found until then is returned."""
    until = time.monotonic() + seconds
    device = os.stat(disk).st_dev
    tallies = {name: _Tally(device, job.since) for name, job in jobs.items()}
    unfinished = deque(_count(job, tallies[name]) for name, job in jobs.items())
    while unfinished and time.monotonic() < until:
        counting = unfinished.popleft()
        if sum(1 for _ in islice(counting, _TURN)) == _TURN:
            unfinished.append(counting)
    for counting in unfinished:
        counting.close()
    return {
        name: DiskUse(
            bytes=tally.bytes,
            files=tally.files,
            written=max(jobs[name].written, tally.written),
            elsewhere=tally.elsewhere,
        )
        for name, tally in tallies.items()
    }


def _count(job: DiskSearch, tally: "_Tally") -> Generator[None]:
    """Add the files of a job to `tally`. Yields at least after each file, so that the caller can interrupt it."""
    for pid in job.processes:
        tally.written += count_written_bytes([pid])
        for status in _open_files(pid):
            if status is not None:
                tally.add(status)
            yield
        yield
    for path in job.paths:
        yield
        folders: list[str] = []
        with suppress(OSError):
            if path is not None and tally.add(os.lstat(path)):
                folders.append(os.fspath(path))
        while folders:
            yield
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    yield
                    with suppress(OSError):
                        if tally.add(entry.stat(follow_symlinks=False)):
                            folders.append(entry.path)


class _Tally:
    """Counts files and bytes of one job on the disk `device` and elsewhere. Files that were last changed before `since`
    are ignored. A file with several hard links is counted once."""

    def __init__(self, device: int, since: float) -> None:
        self.bytes = self.files = self.elsewhere = self.written = 0
        self._device = device
        self._since = since
        self._seen: set[tuple[int, int]] = set()

    def add(self, status: os.stat_result) -> bool:
        """Count a file or folder. Returns True for a folder not seen before: the caller must add its content."""
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder or status.st_nlink != 1:
            if (status.st_dev, status.st_ino) in self._seen:
                return False
            self._seen.add((status.st_dev, status.st_ino))
        if status.st_ctime >= self._since:
            if status.st_dev == self._device:
                self.bytes, self.files = self.bytes + status.st_blocks * 512, self.files + 1
            else:
                self.elsewhere += status.st_blocks * 512
        return is_folder


def _open_files(pid: int) -> Iterator[os.stat_result | None]:
    """Yield the status of each deleted file that a process holds open or mapped, None for each of its other files."""
    for name in ("fd", "map_files"):
        with suppress(OSError), os.scandir(f"/proc/{pid}/{name}") as entries:
            for entry in entries:
                removed = None
                with suppress(OSError):
                    if os.readlink(entry.path).endswith(_UNNAMED) and (status := os.stat(entry.path)).st_nlink == 0:
                        removed = status
                yield removed


def count_written_bytes(processes: Iterable[int]) -> int:
    """Return how many bytes these processes, and children they have waited for, have written to disks."""
    total = 0
    for pid in processes:
        with suppress(OSError):
            pairs = (line.split(b": ") for line in Path(f"/proc/{pid}/io").read_bytes().splitlines())
            counts = {name: int(value) for name, value in pairs}
            total += max(0, counts[b"write_bytes"] - counts[b"cancelled_write_bytes"])
    return total
