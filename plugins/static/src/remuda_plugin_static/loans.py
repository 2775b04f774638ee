"""Who has which machine: a file for each that is handed out, so that any process of the plugin sees the same.

A file `NAME-1a2b3c4d.json` appears whole and is on the disk before anybody is told of it. The name of a file is the id
of an instance, new each time that a machine is handed out: so a late call for an earlier instance never meets the job
that has the machine now. A file that cannot be read keeps its machine back until somebody removes it, since nobody can
say who has the machine. Only one process at a time takes or gives. Blocking: called in threads.
"""

import fcntl
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import msgspec

from remuda.lib.files import sync_folder, write_whole

_END = ".json"
_log = logging.getLogger("fleeting-plugin-static")


class Loan(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that is handed out."""

    id: str
    machine: str
    addresses: tuple[str, ...] = ()
    """Machines of different groups may have one name."""
    group: str = ""
    owner: str = ""
    given_at: float | None = None
    is_broken: bool = False


class Loans:
    """Those kept in one folder, of all groups and owners."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / "lock").touch(mode=0o600)

    def all(self) -> list[Loan]:
        return [self._read(path) for path in sorted(self.folder.glob(f"*{_END}")) if not path.name.startswith(".")]

    def find(self, instance: str) -> Loan | None:
        path = self._path(instance)
        return self._read(path) if path is not None and path.exists() else None

    def give(self, wanted: Callable[[Sequence[Loan]], Sequence[Loan]]) -> list[Loan]:
        """Hand out what `wanted` makes of those that are out; their ids are made here."""
        with self._alone():
            given = []
            for loan in wanted(self.all()):
                loan = msgspec.structs.replace(loan, id=f"{loan.machine}-{token_hex(4)}")
                write_whole(self.folder / f"{loan.id}{_END}", msgspec.json.encode(loan), durable=True)
                given.append(loan)
        return given

    def take_back(self, instance: str) -> bool:
        """False: it was not out."""
        path = self._path(instance)
        with self._alone():
            if path is None or not path.exists():
                return False
            path.unlink()
            sync_folder(self.folder)
        return True

    def _path(self, instance: str) -> Path | None:
        is_name = instance and "/" not in instance and not instance.startswith(".")
        return self.folder / f"{instance}{_END}" if is_name else None

    def _read(self, path: Path) -> Loan:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Loan)
        except (OSError, msgspec.DecodeError) as error:
            if path.exists():
                _log.error(
                    "%s cannot be read, so its machine is kept back: %s. Remove the file when nobody uses the machine",
                    path,
                    error,
                )
            instance = path.name.removesuffix(_END)
            return Loan(id=instance, machine=instance.rpartition("-")[0], is_broken=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
