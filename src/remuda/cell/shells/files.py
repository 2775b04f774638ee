"""Stores interactive shells, and jobs on hold (failed jobs kept for debugging), as plain files beside the traces:
implements `remuda.cell.shells.port.ShellStore`.

    shells/ID/about      the request for the shell, written once
    shells/ID/input      bytes to the command: only grows; its length is the offset of the next piece
    shells/ID/output     bytes from the command, in the same way
    shells/ID/*.seen     the offset that the reader of the stream needs next; its mtime is when the reader last polled
    shells/ID/begun      exists once the runner manager has picked up the shell
    shells/ID/over       why the shell has ended; written once
    held/JOB             a failed job whose environment is kept for debugging, as its runner manager reported it
    sessions/JOB         the session server of the gitlab-runner that has the job, with its secret
    watching/MANAGER     empty; its mtime is when the runner manager last polled for requests

The mtimes are set from the cell's clock. The folder of a shell appears and disappears as a whole."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from remuda.cell.errors import StoreError
from remuda.cell.shells.port import INPUT, OUTPUT, About, JobHold, RunnerSession
from remuda.lib.append_only import Appended, append
from remuda.lib.files import write_whole
from remuda.lib.safe_paths import remove_tree


class ShellFiles:
    def __init__(self, folder: Path) -> None:
        self._shells = folder / "shells"
        self._held = folder / "held"
        self._sessions = folder / "sessions"
        self._watching = folder / "watching"
        for part in (self._shells, self._held, self._sessions, self._watching):
            part.mkdir(parents=True, exist_ok=True, mode=0o700)

    def add(self, about: About, now: float) -> None:
        aside = self._shells / f".{about.id}"
        try:
            aside.mkdir(mode=0o700)
            for name in (INPUT, OUTPUT, f"{INPUT}.seen", f"{OUTPUT}.seen"):
                (aside / name).touch(mode=0o600)
                os.utime(aside / name, (now, now))
            write_whole(aside / "about", msgspec.json.encode(about))
            aside.rename(self._shells / about.id)
        except OSError as error:
            remove_tree(aside, ignore_errors=True)
            raise _store_error(error) from error

    def about(self, shell: str) -> About | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode((self._shells / shell / "about").read_bytes(), type=About)
        return None

    def ids(self) -> list[str]:
        return [name for name in os.listdir(self._shells) if not name.startswith(".")]

    def version(self) -> int:
        return os.stat(self._shells).st_mtime_ns ^ os.stat(self._held).st_mtime_ns

    def size(self, shell: str, stream: str) -> int:
        try:
            return os.stat(self._shells / shell / stream).st_size
        except FileNotFoundError:
            return 0

    def append(self, shell: str, stream: str, start: int, data: bytes, now: float) -> Appended:
        path = self._shells / shell / stream
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                appended = append(file, os.fstat(file).st_size, start, data)
            finally:
                os.close(file)
            if appended.taken:
                os.utime(path, (now, now))
        except FileNotFoundError:
            return Appended(taken=False, size=0)
        except OSError as error:
            raise _store_error(error) from error
        return appended

    def read(self, shell: str, stream: str, start: int, count: int) -> bytes:
        try:
            file = os.open(self._shells / shell / stream, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(file, count, start)
        finally:
            os.close(file)

    def note_reader(self, shell: str, stream: str, offset: int, now: float) -> None:
        path = self._shells / shell / f"{stream}.seen"
        with suppress(FileNotFoundError):
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(file, b"%020d" % offset, 0)
            finally:
                os.close(file)
            os.utime(path, (now, now))

    def reader(self, shell: str, stream: str) -> tuple[int, float]:
        path = self._shells / shell / f"{stream}.seen"
        try:
            return int(path.read_bytes() or b"0"), path.stat().st_mtime
        except FileNotFoundError:
            return 0, 0.0

    def last_append_at(self, shell: str) -> float:
        try:
            return max(os.stat(self._shells / shell / stream).st_mtime for stream in (INPUT, OUTPUT))
        except FileNotFoundError:
            return 0.0

    def begin(self, shell: str) -> None:
        with suppress(FileNotFoundError):
            (self._shells / shell / "begun").touch(mode=0o600)

    def is_begun(self, shell: str) -> bool:
        return (self._shells / shell / "begun").exists()

    def end(self, shell: str, reason: str, now: float) -> None:
        aside = self._shells / shell / f".over-{uuid4().hex}"
        with suppress(FileNotFoundError, FileExistsError):
            write_whole(aside, reason.encode())
            os.utime(aside, (now, now))
            # A link, unlike a rename, does not replace the reason that another process gave first.
            os.link(aside, self._shells / shell / "over")
        aside.unlink(missing_ok=True)

    def end_of(self, shell: str) -> tuple[str, float] | None:
        path = self._shells / shell / "over"
        try:
            return path.read_text(), path.stat().st_mtime
        except FileNotFoundError:
            return None if (self._shells / shell).exists() else ("it was removed", 0.0)

    def remove(self, shell: str) -> None:
        gone = self._shells / f".gone-{shell}"
        with suppress(FileNotFoundError):
            (self._shells / shell).rename(gone)
        remove_tree(gone, ignore_errors=True)

    def put_hold(self, hold: JobHold) -> None:
        write_whole(self._held / str(hold.job_id), msgspec.json.encode(hold))

    def hold_of(self, job_id: int) -> JobHold | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode((self._held / str(job_id)).read_bytes(), type=JobHold)
        return None

    def holds(self) -> Iterator[JobHold]:
        for name in os.listdir(self._held):
            if name.isdigit() and (hold := self.hold_of(int(name))) is not None:
                yield hold

    def remove_hold(self, job_id: int) -> None:
        (self._held / str(job_id)).unlink(missing_ok=True)

    def put_session(self, session: RunnerSession, now: float) -> None:
        path = self._sessions / str(session.job_id)
        write_whole(path, msgspec.json.encode(session))
        os.utime(path, (now, now))

    def session_of(self, job_id: int) -> RunnerSession | None:
        with suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode((self._sessions / str(job_id)).read_bytes(), type=RunnerSession)
        return None

    def forget_sessions(self, before: float) -> None:
        _remove_older(self._sessions, before)

    def note_manager(self, runner_id: int, system_id: str, now: float) -> None:
        path = self._watching / _manager(runner_id, system_id)
        path.touch(mode=0o600)
        os.utime(path, (now, now))

    def manager_seen_at(self, runner_id: int, system_id: str) -> float:
        try:
            return (self._watching / _manager(runner_id, system_id)).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def forget_managers(self, before: float) -> None:
        _remove_older(self._watching, before)


def _remove_older(folder: Path, before: float) -> None:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def _manager(runner_id: int, system_id: str) -> str:
    return f"{runner_id}-{hashlib.sha256(system_id.encode()).hexdigest()[:16]}"


def _store_error(error: OSError) -> StoreError:
    return StoreError(f"cannot store the shell: {error.strerror or error}; check the disk of the data folder")
