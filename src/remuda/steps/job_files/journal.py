"""The folder of one job without its log: stores the request, the events so far, and how the job ended.

    request     the StartRequest, written once
    owner       data of the client about the job, which it reads again after its own restart
    events      JSON lines, private because not masked. `public` in a line is the event for clients, numbered from 1
    step-N.*    files of a running step (see `StepFiles`); removed when its end is stored
    exchange/   files that steps read and write: scripts, inputs, outputs, exports, values of file variables
    inserted/   the same for steps that a policy inserted

A job's folder appears and disappears as a whole, by a rename. An incomplete last line of `events`, which a crash left,
is dropped: no client has seen it. A file whose content differs from what was written is *damage*: everything before the
damaged place is still used, the job is ended, and its folder is moved to `damaged/`, where the last few are kept."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from google.protobuf.message import DecodeError

from remuda.lib.clock import stamp
from remuda.lib.dataclass import dataclass
from remuda.lib.files import read_whole_lines, write_all, write_whole
from remuda.lib.killpoints import reach
from remuda.lib.safe_paths import close_after, remove_tree
from remuda.steps.errors import DamagedError
from remuda.steps.job_files.job_packages import remove_packages
from remuda.steps.job_files.job_usage import Account
from remuda.steps.job_files.open_files import OpenFile
from remuda.steps.job_tree.outcome import Outcome, Status
from remuda.steps.process.leftovers import Leftover
from remuda.steps.process.step_files import EXCHANGE, INSERTED_EXCHANGE, StepFiles
from remuda.wire.proto.agent_pb2 import StartRequest

VERSION = 2
"""Version of the events, without their `public` part."""
_PUBLIC_VERSION = 1
_LARGE = ("variables", "env", "steps", "masks", "mask_prefixes")
"""Fields of a request that a running job has in other forms, which take less memory."""
_NEW, _GONE = ".new-", ".gone-"
DAMAGED = "damaged"
MOST_DAMAGED = 5
"""Number of folders of damaged jobs that are kept."""
_DAMAGED_FILE = (errno.EISDIR, errno.EIO)
"""Errors that show a damaged file: another attempt would fail, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended. Sizes and checksum let a client check that it has received the whole log and all results."""

    outcome: Outcome
    ended_at: float
    log_bytes: int
    log_checksum: str
    results: int
    used: Mapping[str, Any] = field(default_factory=dict)
    """Resource usage of the job (`job_usage`)."""
    held_until: float = 0.0
    """Until when its environments are kept; 0: they are closed."""


class Journal:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exchange = folder / EXCHANGE
        self.accepted_at = 0.0
        self.key = folder.name
        """Identifies this job among those of all agents."""
        self.cancelled = False
        self.leftovers: list[Leftover] = []
        self.results: list[bytes] = []
        """The events for clients, as JSON, in order."""
        self.past: list[dict[str, Any]] = []
        """Events from before this agent adopted the job, from which the tree is rebuilt; empty after the job's end."""
        self.account = Account()
        self.has_recorded_usage = False
        self.has_recorded_outputs = False
        self.end: JobEnd | None = None
        self.is_released = False
        """True if a hold has ended."""
        self.is_foreign = False
        """True if another version of the agent wrote the journal: the job cannot go on."""
        self.id = ""
        """Id of the job as the agent accepted it; empty if an earlier version of the agent did."""
        self.damage = ""
        """What is wrong with its files; empty if nothing is."""
        self._digest = ""
        self._is_on_disk = True
        self._path = folder / "events"
        self._events = OpenFile(str(self._path), flags=os.O_APPEND)
        if not self._path.exists() and any((folder / name).exists() for name in ("control", "results")):
            self._read_first_format()
        else:
            self._read()

    @classmethod
    def create(cls, jobs: Path, request: StartRequest, now: float) -> "Journal":
        """Create the folder of a new job with its request. From then on the agent resumes the job after a crash."""
        folder = jobs / folder_name(request.id)
        aside = folder.with_name(_NEW + folder.name)
        remove_tree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        (aside / EXCHANGE).mkdir(mode=0o700)
        if request.owner:
            _make(aside / "owner", request.owner)
            request.ClearField("owner")
        data = request.SerializeToString()
        _make(aside / "request", data)
        accepted = {"event": "accepted", "version": VERSION, "time": now, "key": token_hex(16)}
        accepted |= {"id": request.id, "request": _digest(data)}
        _make(aside / "events", _line(accepted) + b"\n")
        aside.rename(folder)
        return cls(folder)

    def read_request(self) -> StartRequest:
        """Read the stored request. Raises DamagedError if it cannot be read, or was changed since it was stored."""
        try:
            data = (self.folder / "request").read_bytes()
            request = StartRequest.FromString(data)
        except DecodeError:
            raise DamagedError("request cannot be read") from None
        except OSError as error:
            if error.errno not in (*_DAMAGED_FILE, errno.ENOENT):
                raise
            raise DamagedError(f"request cannot be read: {error.strerror}") from None
        # A truncated request may parse as one with other rights.
        if folder_name(request.id) != self.folder.name or self._digest not in ("", _digest(data)):
            raise DamagedError("request is not the one that was stored")
        return request

    def read_storage_time(self) -> float:
        """Return when the request was written, by file time; `accepted_at` differs if the clock was changed."""
        with suppress(OSError):
            return (self.folder / "request").stat().st_ctime
        return self.accepted_at

    def read_owner(self) -> bytes:
        with suppress(OSError):
            return (self.folder / "owner").read_bytes()
        return b""

    def record_damage(self, damage: str) -> None:
        """Store that files of the job are damaged (`damage`). The job will be ended, even if they are repaired."""
        if not self.damage:
            self._add({"event": "damaged", "text": damage})
            self.damage = damage

    def record_cancel(self) -> None:
        self._add({"event": "cancel"})
        self.cancelled = True

    def record_leftover(self, leftover: Leftover) -> None:
        self._add({"event": "left_running"} | asdict(leftover))
        self.leftovers.append(leftover)

    def record(self, event: Mapping[str, Any], public: Mapping[str, Any] | None = None) -> None:
        """Store an event of a step, from which the tree of steps is rebuilt after a crash. `public`: the event that
        clients get for it, which gets the next number; None: clients get none."""
        line = _line(event)
        result = b""
        if public is not None:
            result = _line({"version": _PUBLIC_VERSION, "seq": len(self.results) + 1} | dict(public))
            line = b'%s,"public":%s}' % (line[:-1], result)
        self._store(line)
        if public is not None:
            if "usage" in public:
                self.account.add(public["usage"])
            self.results.append(result)
            reach("agent.result_stored")

    def record_used(self, used: Mapping[str, Any], now: float) -> None:
        if used and not self.has_recorded_usage:
            self.record({"event": "used"}, {"event": "used", "time": stamp(now), "used": dict(used)})
            self.has_recorded_usage = True

    def record_outputs(self, event: Mapping[str, Any]) -> None:
        """Store the outputs of the definition in the job's request, unless they are stored. `event`: for clients."""
        if not self.has_recorded_outputs:
            self.record({"event": "outputs"}, event)
            self.has_recorded_outputs = True

    def record_end(self, end: JobEnd) -> None:
        self._add({"event": "end"} | asdict(end))
        self.end = end
        reach("agent.job_ended")

    def record_release(self) -> None:
        self._add({"event": "released"})
        self.is_released = True

    def step_files(self, serial: int, folder: str = EXCHANGE) -> StepFiles:
        return StepFiles(self.folder, serial, folder)

    def remove_exchange(self) -> None:
        for folder in (EXCHANGE, INSERTED_EXCHANGE):
            remove_tree(self.folder / folder, ignore_errors=True)
        remove_packages(self.folder)

    def remove(self) -> None:
        """Remove the job's folder. It is renamed first, so that a crash cannot leave half of it as a job. If its files
        are damaged, it is moved to `damaged/` instead, for inspection."""
        self.shut()
        if self.damage:
            keep_damaged(self.folder)
            return
        gone = self.folder.with_name(_GONE + self.folder.name)
        remove_tree(gone, ignore_errors=True)
        with suppress(FileNotFoundError):
            self.folder.rename(gone)
        remove_tree(gone, ignore_errors=True)

    def leave_disk(self) -> None:
        """Stop writing to the disk after a failed write: later events are only in memory, until the agent ends."""
        self._is_on_disk = False

    def shut(self) -> None:
        self._events.close()

    def _add(self, event: dict[str, Any]) -> None:
        self._store(_line(event))

    def _store(self, line: bytes) -> None:
        if self._is_on_disk:
            _append(self._events, line)

    def _read(self) -> None:
        whole = 0
        try:
            data = self._path.read_bytes()
            for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
                self._learn(json.loads(line))
                whole += len(line)
            if not whole:
                raise ValueError("the first line is missing")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, OSError) and error.errno not in (*_DAMAGED_FILE, errno.ENOENT):
                raise
            self._begin_anew(data[:whole] if whole else b"")
            return
        if whole < len(data):
            os.truncate(self._path, whole)

    def _begin_anew(self, whole: bytes) -> None:
        """Keep a copy of the damaged events file, and write a new one: `whole`, the readable part, and a note."""
        aside = self._path.with_name("events.damaged")
        if self._path.is_dir():
            self._path.rename(aside)
        elif self._path.exists() and not aside.exists():
            os.link(self._path, aside)
        self.damage = f"events cannot be read after its first {len(whole)} bytes"
        write_whole(self._path, whole + _line({"event": "damaged", "text": self.damage}) + b"\n")

    def _learn(self, event: dict[str, Any]) -> None:
        public = event.pop("public", None)
        if public is not None:
            self.account.add(public.get("usage", {}))
            self.results.append(_line(public))
        match event["event"]:
            case "accepted":
                self.accepted_at, self.key = event["time"], event.get("key", self.key)
                self.is_foreign = event["version"] != VERSION
                self.id, self._digest = event.get("id", ""), event.get("request", "")
            case "damaged":
                self.damage = event["text"]
            case "cancel":
                self.cancelled = True
                self.past.append(event)
            case "left_running":
                processes = tuple((pid, start) for pid, start in event["processes"])
                self.leftovers.append(Leftover(session=event["session"], processes=processes))
            case "end":
                self.end = _end_of(event)
                self.past.clear()
            case "used":
                self.has_recorded_usage = True
            case "outputs":
                self.has_recorded_outputs = True
            case "released":
                self.is_released = True
            case _:
                self.past.append(event)

    def _read_first_format(self) -> None:
        """Read a job folder that the first version of the agent wrote. This agent cannot continue the job, but clients
        can fetch its results and how it ended."""
        self.is_foreign = True
        self.results = read_whole_lines(self.folder / "results")
        if (self.folder / "end").exists():
            self.end = _end_of(json.loads((self.folder / "end").read_bytes()))


def read_request(folder: Path) -> StartRequest:
    return StartRequest.FromString((folder / "request").read_bytes())


def keep_damaged(folder: Path) -> None:
    place = folder.parent.parent / DAMAGED
    place.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        folder.rename(place / f"{folder.name}-{token_hex(4)}")
    folders = sorted(place.iterdir(), key=lambda path: path.lstat().st_ctime_ns)
    for old in folders[:-MOST_DAMAGED]:
        remove_tree(old, ignore_errors=True)


def without_large(request: StartRequest) -> StartRequest:
    """Clear the large fields of `request`, and return a copy to use instead: clearing alone frees no memory."""
    for name in _LARGE:
        request.ClearField(name)
    copy = StartRequest()
    copy.CopyFrom(request)
    return copy


def folder_name(job_id: str) -> str:
    """Return a folder name for a job id: a hash, because ids may contain any characters."""
    return hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def list_jobs(jobs: Path) -> Iterator[Path]:
    """Yield the folders of complete jobs. Removes folders that a crash left half created or half removed."""
    for folder in sorted(jobs.iterdir()):
        if folder.name.startswith((_NEW, _GONE)):
            remove_tree(folder, ignore_errors=True)
        elif folder.is_dir():
            yield folder


_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def _line(value: Mapping[str, Any]) -> bytes:
    return _encode(value).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _make(path: Path, data: bytes) -> None:
    with close_after(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)) as file:
        write_all(file, data)


def _append(file: OpenFile, line: bytes) -> None:
    fd = file.descriptor()
    written = os.write(fd, line + b"\n")
    if written <= len(line):
        os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)


def _end_of(value: dict[str, Any]) -> JobEnd:
    outcome = value["outcome"]
    return JobEnd(
        outcome=Outcome(**(outcome | {"status": Status(outcome["status"])})),
        ended_at=value["ended_at"],
        log_bytes=value["log_bytes"],
        log_checksum=value["log_checksum"],
        results=value["results"],
        used=value.get("used", {}),
        held_until=value.get("held_until", 0.0),
    )
