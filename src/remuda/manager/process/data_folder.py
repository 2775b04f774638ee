"""The manager's data folder, for one process at a time, and made anew when somebody removes it under that process.

Who holds the lock in it is the manager of its jobs. A folder that vanishes takes the lock along; whoever makes the new
one first is the manager from then on, and the other one has to stop.
"""

import hashlib
import sqlite3
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from remuda.manager.environments.agent_process import agent_data
from remuda.manager.errors import DataFolderError, FolderTakenError, JournalDamagedError
from remuda.manager.jobs.journal import LOCK_NAME, Journal, damaged_journals, identity_of, locked, set_aside
from remuda.manager.process.system_id import keep_system_id, system_id
from remuda.telemetry.logs import logger


def jobs_folder(data: Path) -> Path:
    """Where the local agent, working directories and caches are: apart, so that jobs survive the data folder's loss.

    A data folder in which an earlier Remuda has put them keeps them.
    """
    return data if agent_data(data).is_dir() else data.with_name(f"{data.name}.jobs")


class DataFolder:
    """Enter it to hold it: then `journal` and `own_id` are there."""

    journal: Journal
    own_id: str

    def __init__(self, path: Path, *, beside_config: Path | None = None) -> None:
        self.path = path
        self._beside_config = beside_config
        self._held = ExitStack()
        self._lock: tuple[int, int] | None = None
        self._problem = ""
        self.set_aside = 0
        """How many damaged journals this process has moved aside."""
        self._log = logger("manager")

    def __enter__(self) -> "DataFolder":
        with ExitStack() as stack:
            stack.enter_context(self._held)
            self._hold()
            self.journal = self._open_journal()
            self._held.callback(self.journal.close)
            self.own_id = system_id(self.path, beside_config=self._beside_config)
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def _open_journal(self) -> Journal:
        """The journal, or a new one in place of one that is damaged: jobs that run are found through their agents."""
        path = self.path / "journal.sqlite"
        try:
            return Journal(path)
        except JournalDamagedError as error:
            try:
                kept = set_aside(path, datetime.now(UTC))
            except OSError as problem:
                raise DataFolderError(f"{error}, and it cannot be moved aside: {problem}. Move it away.") from error
            self.set_aside += 1
            self._log.error(
                "the journal is damaged; it was moved aside, and a new one begun",
                cause=str(error),
                kept=str(kept),
                fix="nothing has to be done for jobs that agents have: they are found again. Look after the disk, "
                "and remove the file when nobody needs it",
            )
            return Journal(path)

    @property
    def damaged_journals(self) -> tuple[str, ...]:
        """Those that have been moved aside, by this process or earlier ones."""
        return damaged_journals(self.path / "journal.sqlite")

    @property
    def mark(self) -> str:
        """Short, and another one for every manager: managers of one machine have the same id on their server."""
        return hashlib.sha256(f"{self.own_id}\0{self.path.absolute()}".encode()).hexdigest()[:8]

    def is_there(self) -> bool:
        """Whether a new process would find it locked, and the journal in it."""
        return identity_of(self.path / LOCK_NAME) == self._lock and self.journal.is_there()

    async def kept(self, *, jobs: int) -> FolderTakenError | None:
        """Look whether it is there, and make it anew if not: nothing is lost as long as this process lives.

        What is returned says why the manager, which has so many `jobs`, cannot go on.
        """
        if self.is_there():
            return None
        try:
            await self.renew()
        except FolderTakenError as error:
            self._log.error("the data folder was removed, and another manager has made it anew", cause=str(error))
            return error
        except (OSError, sqlite3.Error, DataFolderError) as error:
            if str(error) != self._problem:
                self._log.error("the data folder is gone and cannot be made anew; jobs wait", cause=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
            self._log.error("the data folder was removed; it has been made anew", jobs=jobs)
        return None

    async def renew(self) -> None:
        """Make it anew, with all that this process knows. DataFolderError: it is another manager's by now."""
        if identity_of(self.path / LOCK_NAME) != self._lock:
            self._hold()
        keep_system_id(self.path, self.own_id)
        if not self.journal.is_there():
            await self.journal.renew()

    def _hold(self) -> None:
        self._held.enter_context(locked(self.path))
        self._lock = identity_of(self.path / LOCK_NAME)
