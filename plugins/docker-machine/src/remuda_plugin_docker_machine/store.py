"""What is known of the machines, as folders in docker-machine's store: the only state there is, so that any process of
the plugin sees the same.

A machine is the folder `remuda/NAME`, beside docker-machine's `machines/NAME`. It is on the disk, with the owner,
before docker-machine hears of the machine, and goes after docker-machine's own is gone: nothing is ever made that
nobody can find again. Whoever makes or removes a machine holds the `lock` in it, which docker-machine inherits;
`create.exit` and `rm.exit` have what came of it. A machine that nobody makes any more and that was not made is half
made, and has to go. `deleting`: it is to go. `address`: asked for, since docker-machine had not written it down.
Blocking, but only local files.
"""

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
"""Of the machine without a machine that has the certificates made."""
CERTIFICATES = ("ca.pem", "ca-key.pem", "cert.pem", "key.pem")
_NEW, _GONE = ".new-", ".gone-"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a machine before it is made: `machine.json`."""

    name: str
    owner: str = ""
    group: str = ""
    """Settings that name machines: two groups of one owner may share a store."""
    created_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A machine as it is now."""

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
    """A machine that is about to be made, and its lock, held by us: pass it on, then close it."""

    machine: Machine
    lock: int


class Store:
    """docker-machine's, and ours in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / FOLDER

    def prepare(self) -> None:
        """Make the folder, for this user only, and clear what processes that died were about to add or to remove."""
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
        """docker-machine's own folder of it."""
        return self.root / "machines" / name

    def left_trials(self) -> list[str]:
        with suppress(FileNotFoundError):
            return [name for name in os.listdir(self.root / "machines") if name.startswith(TRIAL_PREFIX)]
        return []

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process of the plugin adds machines, or has certificates made, meanwhile."""
        with (self._folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def add(self, machines: Sequence[Machine], *, max_size: int) -> list[Draft]:
        """As many of them as there is room for in their group."""
        drafts = []
        with self.alone():
            groups = {(machine.owner, machine.group) for machine in machines}
            there = sum((seen.machine.owner, seen.machine.group) in groups for seen in self.look_all())
            for machine in machines[: max(0, max_size - there)]:
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
        """None: there is no such machine of ours."""
        folder = self.place(name)
        if not name or name.startswith(".") or "/" in name or not folder.is_dir():
            return None
        # The lock first: whoever has it writes the exit code before it is free.
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

    def take(self, name: str) -> int | None:
        """The lock of a machine, which nobody has now but us; None: somebody has. FileNotFoundError: it is gone."""
        lock = os.open(self.place(name) / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def exit_code(self, name: str, verb: str) -> int | None:
        """Of docker-machine; None: it has not ended, or was killed."""
        code = _text(self.place(name) / f"{verb}.exit").strip()
        return int(code) if code.isdecimal() else None

    def words(self, name: str, verb: str) -> str:
        """What docker-machine said when it made or removed the machine."""
        return _text(self.place(name) / f"{verb}.log")

    def kept_address(self, name: str) -> str:
        return _text(self.place(name) / "address").strip()

    def keep_address(self, name: str, address: str) -> None:
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
