"""State of a group on disk: one folder for each machine, shared by all processes of the plugin.

A machine is the folder `machines/ID`, which appears (`add`) and disappears (`remove`) atomically. The machine is alive
exactly as long as its `lock` is held: first by the process that adds it, then by the machine's process, which inherits
it. So it is known after any crash which machines are alive, without process ids. Files in the folder are facts: `pid`
and `address`, written by the machine's first process; `up`: login worked; `deleting`: it is to be removed. Blocking:
called in threads, except for reads and marks of one machine."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

import msgspec

from remuda.fleeting import InstanceState
from remuda.lib.dataclass import dataclass
from remuda.lib.files import write_whole
from remuda.lib.safe_paths import remove_tree
from remuda_plugin_local.processes import ProcessId, read_process_id

_NEW, _GONE = ".new-", ".gone-"
_TAIL_BYTES = 2000


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Content of `machine.json`, written before the machine is made."""

    id: str
    owner: str = ""
    created_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Current state of a machine. `is_up`: login worked."""

    machine: Machine
    is_alive: bool
    is_up: bool = False
    is_deleting: bool = False
    address: str = ""

    @property
    def state(self) -> InstanceState:
        if self.is_deleting:
            return InstanceState.DELETING
        if not self.is_alive:
            return InstanceState.DELETED
        return InstanceState.RUNNING if self.is_up else InstanceState.CREATING


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A machine to be made. `lock`: descriptor of its held lock; pass it to the machine's process, then close it."""

    machine: Machine
    lock: int


class Store:
    """The machines below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._machines = folder / "machines"

    def prepare(self) -> None:
        """Make the folder, for this user only, and remove half-added and half-removed machines of killed processes."""
        self._machines.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        with self.alone():
            for folder in self._machines.iterdir():
                if folder.name.startswith((_NEW, _GONE)) and _is_free(folder):
                    _clear(folder)

    def place(self, machine: str) -> Path:
        return self._machines / machine

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the group during the `with` block: no other process adds a machine meanwhile."""
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def add(self, count: int, *, group: str, owner: str, now: float, max_size: int) -> list[Draft]:
        """Add up to `count` machines, but not more than `max_size` alive ones in total. Returns the added ones."""
        drafts = []
        with self.alone():
            living = sum(seen.is_alive for seen in self.look_all())
            for _ in range(min(count, max_size - living)):
                machine = Machine(id=f"{group}-{token_hex(4)}", owner=owner, created_at=now)
                new = self._machines / f"{_NEW}{machine.id}"
                new.mkdir()
                lock = os.open(new / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                write_whole(new / "machine.json", msgspec.json.encode(machine))
                (new / "lease").touch()
                new.rename(self.place(machine.id))
                drafts.append(Draft(machine=machine, lock=lock))
        return drafts

    def look_all(self) -> list[Seen]:
        names = [name for name in os.listdir(self._machines) if not name.startswith(".")]
        return [seen for name in sorted(names) if (seen := self.look(name)) is not None]

    def look(self, machine: str) -> Seen | None:
        """Read a machine; None if there is none of this name."""
        folder = self.place(machine)
        if not machine or machine.startswith(".") or "/" in machine or not folder.is_dir():
            return None
        return Seen(
            machine=_read_machine(folder),
            is_alive=not _is_free(folder),
            is_up=(folder / "up").exists(),
            is_deleting=(folder / "deleting").exists(),
            address=read_text(folder / "address").strip(),
        )

    def mark(self, machine: str, fact: str) -> None:
        """Touch a machine's file `fact`: `up`, `deleting`, or `lease`, whose time says when a manager last listed the
        machine. Ignores a machine that is gone."""
        with suppress(FileNotFoundError, NotADirectoryError):
            (self.place(machine) / fact).touch()

    def process(self, machine: str) -> ProcessId | None:
        return read_process_id(read_text(self.place(machine) / "pid"))

    def last_words(self, machine: str) -> str:
        return read_text(self.place(machine) / "log")[-_TAIL_BYTES:].strip()

    def take_lock(self, machine: str) -> int | None:
        """Lock an ended machine for `remove`; return the lock's descriptor, which the caller closes, or None if it is
        alive. Raises FileNotFoundError if it is gone."""
        return _take_lock(self.place(machine) / "lock")

    def remove(self, machine: str) -> None:
        """Remove a machine's folder. The caller must hold the machine's lock."""
        gone = self._machines / f"{_GONE}{machine}"
        self.place(machine).rename(gone)
        _clear(gone)


def _clear(folder: Path) -> None:
    """Remove a folder, its lock last, so that other processes leave the folder alone meanwhile."""
    with suppress(FileNotFoundError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            elif entry.name != "lock":
                entry.unlink()
        remove_tree(folder)


def _take_lock(path: Path) -> int | None:
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    raise FileNotFoundError(path)


def _is_free(folder: Path) -> bool:
    try:
        lock = _take_lock(folder / "lock")
    except FileNotFoundError:
        return True
    if lock is not None:
        os.close(lock)
    return lock is not None


def _read_machine(folder: Path) -> Machine:
    """Read `machine.json`. If a power failure lost it, only the name is known, and the machine is dead."""
    try:
        return msgspec.json.decode((folder / "machine.json").read_bytes(), type=Machine)
    except (OSError, msgspec.MsgspecError):
        return Machine(id=folder.name)


def read_text(path: Path) -> str:
    """Read a file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
