"""State of the machines: folders in docker-machine's store, shared by all processes of the plugin.

A machine is the folder `remuda/NAME`, beside docker-machine's `machines/NAME`. It is on disk, with the owner, before
docker-machine makes the machine, and is removed after docker-machine's folder, so every machine can be found again.
Whoever makes or removes a machine holds its `lock`, which docker-machine inherits; `create.exit` and `rm.exit` have the
exit codes. A machine without a successful create whose lock is free is half made, and is removed. The file `deleting`
marks a machine to be removed. `address`: its address, if docker-machine did not store it. Blocking, but reads local
files only."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from remuda.fleeting import InstanceState
from remuda.lib.dataclass import dataclass
from remuda.lib.files import sync_folder, write_whole
from remuda.lib.safe_paths import remove_tree

FOLDER = "remuda"
TRIAL_PREFIX = "remuda-certificates-"
"""Prefix of the dummy machine with which the certificates are made."""
CERTIFICATES = ("ca.pem", "ca-key.pem", "cert.pem", "key.pem")
_NEW, _GONE = ".new-", ".gone-"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Content of `machine.json`, written before the machine is made."""

    name: str
    owner: str = ""
    group: str = ""
    """Name of the group: two groups of one owner may share a store."""
    created_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Current state of a machine. `exit_code`: of its create; `is_held`: docker-machine is making or removing it."""

    machine: Machine
    exit_code: int | None = None
    is_held: bool = False
    is_deleting: bool = False

    @property
    def is_half_made(self) -> bool:
        return self.exit_code != 0 and not self.is_held

    @property
    def state(self) -> InstanceState:
        if self.is_deleting or self.is_half_made:
            return InstanceState.DELETING
        return InstanceState.RUNNING if self.exit_code == 0 else InstanceState.CREATING


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A machine to be made. `lock`: descriptor of its held lock; pass it to docker-machine, then close it."""

    machine: Machine
    lock: int


class Store:
    """docker-machine's store, and the plugin's folders in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / FOLDER

    def prepare(self) -> None:
        """Make the folder, for this user only, and remove half-added and half-removed machines of killed processes."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.alone():
            for folder in self._folder.iterdir():
                if folder.name.startswith((_NEW, _GONE)):
                    remove_tree(folder, ignore_errors=True)

    @property
    def has_certificates(self) -> bool:
        return all((self.root / "certs" / name).exists() for name in CERTIFICATES)

    def place(self, name: str) -> Path:
        return self._folder / name

    def machine_place(self, name: str) -> Path:
        """docker-machine's folder of a machine."""
        return self.root / "machines" / name

    def list_trials(self) -> list[str]:
        with suppress(FileNotFoundError):
            return [name for name in os.listdir(self.root / "machines") if name.startswith(TRIAL_PREFIX)]
        return []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the store in the `with` block: no other process of the plugin adds machines meanwhile."""
        with (self._folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def add(self, machines: Sequence[Machine], *, max_size: int) -> list[Draft]:
        """Add `machines`, all of one group, in their order until the group has `max_size`; return the added ones."""
        drafts = []
        with self.alone():
            groups = {(machine.owner, machine.group) for machine in machines}
            present = sum((seen.machine.owner, seen.machine.group) in groups for seen in self.look_all())
            for machine in machines[: max(0, max_size - present)]:
                new = self._folder / f"{_NEW}{machine.name}"
                new.mkdir(mode=0o700)
                lock = os.open(new / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                write_whole(new / "machine.json", msgspec.json.encode(machine), durable=True)
                new.rename(self.place(machine.name))
                sync_folder(self._folder)
                drafts.append(Draft(machine=machine, lock=lock))
        return drafts

    def look_all(self) -> list[Seen]:
        names = [name for name in os.listdir(self._folder) if not name.startswith(".")]
        return [seen for name in sorted(names) if (seen := self.look(name)) is not None]

    def look(self, name: str) -> Seen | None:
        """Read a machine; None if there is none of this name."""
        folder = self.place(name)
        if not name or name.startswith(".") or "/" in name or not folder.is_dir():
            return None
        # The lock is read first: its holder writes the exit code before it releases the lock.
        is_held = not _is_free(folder)
        return Seen(
            machine=_read_machine(folder),
            exit_code=self.exit_code(name, "create"),
            is_held=is_held,
            is_deleting=(folder / "deleting").exists(),
        )

    def mark_deleting(self, name: str) -> None:
        with suppress(FileNotFoundError):
            write_whole(self.place(name) / "deleting", b"", durable=True)

    def take_lock(self, name: str) -> int | None:
        """Lock a machine; return the lock's descriptor, which the caller closes, or None if another process holds the
        lock. Raises FileNotFoundError if the machine is gone."""
        lock = os.open(self.place(name) / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def exit_code(self, name: str, verb: str) -> int | None:
        """Exit code of docker-machine's last run of `verb` (create, rm); None if it has not ended or was killed."""
        code = _text(self.place(name) / f"{verb}.exit").strip()
        return int(code) if code.isdecimal() else None

    def read_log(self, name: str, verb: str) -> str:
        """Output of docker-machine's last run of `verb` (create, rm) for a machine; empty if there is none."""
        return _text(self.place(name) / f"{verb}.log")

    def read_address(self, name: str) -> str:
        return _text(self.place(name) / "address").strip()

    def write_address(self, name: str, address: str) -> None:
        with suppress(FileNotFoundError):
            write_whole(self.place(name) / "address", address.encode())

    def remove(self, name: str) -> None:
        gone = self._folder / f"{_GONE}{name}"
        with suppress(FileNotFoundError):
            self.place(name).rename(gone)
            sync_folder(self._folder)
            remove_tree(gone, ignore_errors=True)


def _read_machine(folder: Path) -> Machine:
    try:
        return msgspec.json.decode((folder / "machine.json").read_bytes(), type=Machine)
    except (OSError, msgspec.DecodeError):
        return Machine(name=folder.name)


def _is_free(folder: Path) -> bool:
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
