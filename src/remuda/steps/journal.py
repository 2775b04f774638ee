"""The files of one job, apart from its log: what was asked, what happened so far, how it ended.

    request    the StartRequest, written once
    control    JSON lines: accepted, cancel, why the agent ended a step's processes, what a step left running
    results    JSON lines, the events a client sees, numbered from 1
    end        the job's end
    step-N.*   what the running step needs (see `StepFiles`); removed when its result is stored
    files/     values of file variables

A folder appears complete or not at all (it is made aside and renamed) and disappears the same way. A last line that
was cut by a crash is dropped when the folder is read: nobody was told about it. What the entries mean is decided
in `plan`; when they are written, in `runner`.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remuda.lib.files import write_whole
from remuda.lib.killpoints import reach
from remuda.steps.files import StepFiles
from remuda.steps.leftovers import Leftover
from remuda.steps.plan import Cause, Fault, Finished, Outcome, Status
from remuda.wire.proto.agent_pb2 import StartRequest

_VERSION = 1
_NEW, _GONE = ".new-", ".gone-"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended, with what a client needs to know that it has everything."""

    outcome: Outcome
    ended_at: float
    log_bytes: int
    log_checksum: str
    results: int


class Journal:
    """One job's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.accepted_at = 0.0
        self.cancelled = False
        self.causes: dict[int, Cause] = {}
        """Why the agent ended a step, by the step's place in the list."""
        self.leftovers: list[Leftover] = []
        self.results: list[bytes] = []
        self.finished: list[Finished] = []
        self.started: dict[str, Any] | None = None
        """The event of the step that runs now."""
        self.end: JobEnd | None = None
        self._step_files: tuple[int, StepFiles] | None = None
        for entry in _read_lines(folder / "control"):
            self._learn_control(json.loads(entry))
        for line in _read_lines(folder / "results"):
            self._learn_result(line, json.loads(line))
        if (folder / "end").exists():
            self.end = _read_end((folder / "end").read_bytes())
        for index in range(len(self.finished)):
            self.forget_step(index)

    @classmethod
    def create(cls, jobs: Path, request: StartRequest, now: float) -> "Journal":
        """Store a request; from here on the job exists."""
        folder = jobs / folder_name(request.id)
        aside = folder.with_name(_NEW + folder.name)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        write_whole(aside / "request", request.SerializeToString())
        _append(aside / "control", {"version": _VERSION, "event": "accepted", "time": now})
        aside.rename(folder)
        return cls(folder)

    def read_request(self) -> StartRequest:
        return StartRequest.FromString((self.folder / "request").read_bytes())

    @property
    def timed_out(self) -> bool:
        return Cause.JOB_TIMEOUT in self.causes.values()

    def record_cancel(self) -> None:
        self._control(event="cancel")

    def record_cause(self, index: int, cause: Cause) -> None:
        self._control(event="ended_by_agent", step=index, cause=str(cause))

    def record_leftover(self, leftover: Leftover) -> None:
        self._control(event="left_running", **asdict(leftover))

    def add_result(self, event: dict[str, Any]) -> None:
        """Number an event and store it."""
        event = {"version": _VERSION, "seq": len(self.results) + 1} | event
        self._learn_result(_append(self.folder / "results", event), event)
        reach("agent.result_stored")

    def record_end(self, end: JobEnd) -> None:
        value = {"version": _VERSION} | asdict(end)
        write_whole(self.folder / "end", json.dumps(value).encode())
        self.end = end
        reach("agent.job_ended")

    def step_files(self, index: int) -> StepFiles:
        if self._step_files is None or self._step_files[0] != index:
            self._step_files = (index, StepFiles(self.folder, index))
        return self._step_files[1]

    def forget_step(self, index: int) -> None:
        self.step_files(index).remove()

    def remove(self) -> None:
        """Make the folder disappear at once, its contents after that."""
        gone = self.folder.with_name(_GONE + self.folder.name)
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(FileNotFoundError):
            self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _control(self, **entry: Any) -> None:
        _append(self.folder / "control", entry)
        self._learn_control(entry)

    def _learn_control(self, entry: dict[str, Any]) -> None:
        match entry["event"]:
            case "accepted":
                self.accepted_at = entry["time"]
            case "cancel":
                self.cancelled = True
            case "ended_by_agent":
                self.causes[entry["step"]] = Cause(entry["cause"])
            case "left_running":
                processes = tuple((pid, start) for pid, start in entry["processes"])
                self.leftovers.append(Leftover(session=entry["session"], processes=processes))

    def _learn_result(self, line: bytes, event: dict[str, Any]) -> None:
        self.results.append(line)
        if event["event"] == "started":
            self.started = event
            return
        self.started = None
        self.finished.append(
            Finished(
                status=Status(event["status"]),
                exit_code=event["exit_code"],
                error=event["error"],
                fault=Fault(event["fault"]) if event["fault"] else None,
            )
        )


def folder_name(job_id: str) -> str:
    """A name that no id can escape from."""
    return hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def stored_jobs(jobs: Path) -> Iterator[Path]:
    """Folders of complete jobs; what a crash left half made or half removed is cleared away."""
    for folder in sorted(jobs.iterdir()):
        if folder.name.startswith((_NEW, _GONE)):
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.is_dir():
            yield folder


def _append(path: Path, entry: dict[str, Any]) -> bytes:
    line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")).encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        written = os.write(fd, line + b"\n")
        if written <= len(line):
            os.ftruncate(fd, os.fstat(fd).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(fd)
    return line


def _read_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return data[:whole].splitlines()


def _read_end(data: bytes) -> JobEnd:
    value = json.loads(data)
    outcome = value["outcome"]
    return JobEnd(
        outcome=Outcome(**(outcome | {"status": Status(outcome["status"])})),
        ended_at=value["ended_at"],
        log_bytes=value["log_bytes"],
        log_checksum=value["log_checksum"],
        results=value["results"],
    )
