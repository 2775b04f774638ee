"""The manager's data folder: locked by one process, and created again if it is removed under that process.

The process with the lock is the manager of the jobs. If the folder vanishes, the lock vanishes, too: the process that
creates the new folder first is the manager, and another one has to stop.
"""

import hashlib
import sqlite3
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from remuda.manager.environments.agent_process import agent_data
from remuda.manager.errors import DataFolderError, FolderTakenError, JournalDamagedError
from remuda.manager.jobs.journal import LOCK_NAME, Journal, damaged_journals, identity_of, lock_folder, set_aside
from remuda.manager.registration.system_id import keep_system_id, system_id
from remuda.telemetry.logs import logger


def jobs_folder(data: Path) -> Path:
    """The folder of the local agent, working directories and caches. It is apart, so that jobs survive the loss of the
    data folder. A data folder that already contains them keeps them.
    """
    return data if agent_data(data).is_dir() else data.with_name(f"{data.name}.jobs")


class DataFolder:
    """Enter it to lock it; then `journal` and `own_id` are set."""

    journal: Journal
    own_id: str

    def __init__(self, path: Path, *, beside_config: Path | None = None) -> None:
        self.path = path
        self._beside_config = beside_config
        self._held = ExitStack()
        self._lock: tuple[int, int] | None = None
        self._problem = ""
        self.set_aside = 0
        """Number of damaged journals that this process moved aside."""
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
        """Open the journal. A damaged one is replaced by a new one; running jobs are recovered from their agents."""
        path = self.path / "journal.sqlite"
        try:
            return Journal(path)
        except JournalDamagedError as error:
            try:
                moved_to = set_aside(path, datetime.now(UTC))
            except OSError as problem:
                raise DataFolderError(f"{error}, and it cannot be moved aside: {problem}. Move it away.") from error
            self.set_aside += 1
            self._log.error(
                "journal damaged; moved it aside and started a new one",
                cause=str(error),
                kept=str(moved_to),
                fix="running jobs are recovered from their agents. Check the disk, and remove the file when nobody "
                "needs it",
            )
            return Journal(path)

    @property
    def damaged_journals(self) -> tuple[str, ...]:
        """Journals that were moved aside, by this process or earlier ones."""
        return damaged_journals(self.path / "journal.sqlite")

    @property
    def mark(self) -> str:
        """A short id that differs even for managers of one machine, which share a system id."""
        return hashlib.sha256(f"{self.own_id}\0{self.path.absolute()}".encode()).hexdigest()[:8]

    def is_there(self) -> bool:
        """True if a new process would find the lock and the journal."""
        return identity_of(self.path / LOCK_NAME) == self._lock and self.journal.is_there()

    async def restore_if_removed(self, *, jobs: int) -> FolderTakenError | None:
        """Create the folder again if it was removed, with everything this process knows.

        Returns an error if another manager has taken it; then this one, with its `jobs`, cannot go on.
        """
        if self.is_there():
            return None
        try:
            await self.renew()
        except FolderTakenError as error:
            self._log.error("data folder was removed and now belongs to another manager", cause=str(error))
            return error
        except (OSError, sqlite3.Error, DataFolderError) as error:
            if str(error) != self._problem:
                self._log.error("cannot recreate the removed data folder; jobs wait", cause=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
            self._log.error("data folder was removed; recreated it", jobs=jobs)
        return None

    async def renew(self) -> None:
        """Create the folder again. Raises DataFolderError if another manager uses it meanwhile."""
        if identity_of(self.path / LOCK_NAME) != self._lock:
            self._hold()
        keep_system_id(self.path, self.own_id)
        if not self.journal.is_there():
            await self.journal.renew()

    def _hold(self) -> None:
        self._held.enter_context(lock_folder(self.path))
        self._lock = identity_of(self.path / LOCK_NAME)
