"""Loans on disk: one file for each machine that is handed out, shared by all processes of the plugin.

A file `NAME-1a2b3c4d.json` is written atomically and durably before the instance is reported. The file name without
`.json` is the id of the instance, and new for each loan, so a late call for an earlier instance never affects the job
that has the machine now. A file that cannot be read blocks its machine until somebody removes the file. A lock lets one
process at a time change loans. Blocking: called in threads, except for `find`."""

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
    """Addresses of the machine, because machines of different groups may have the same name."""
    group: str = ""
    owner: str = ""
    given_at: float | None = None
    is_broken: bool = False
    """The file cannot be read; only `id` and `machine` are known, from its name."""


class Loans:
    """The loans in one folder, of all groups and owners."""

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

    def give(self, choose: Callable[[Sequence[Loan]], Sequence[Loan]]) -> list[Loan]:
        """Store the new loans that `choose` makes from all present loans. Returns the new loans, with their ids set."""
        with self._alone():
            new_loans = []
            for loan in choose(self.all()):
                loan = msgspec.structs.replace(loan, id=f"{loan.machine}-{token_hex(4)}")
                write_whole(self.folder / f"{loan.id}{_END}", msgspec.json.encode(loan), durable=True)
                new_loans.append(loan)
        return new_loans

    def take_back(self, instance: str) -> bool:
        """End the loan with the id `instance`. False if there was none."""
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
                    "cannot read %s; not handing out its machine: %s. Remove the file when no job uses the machine",
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
