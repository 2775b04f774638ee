"""The manager's data folder: locked by one manager process, and created again if it is deleted while that runs. If it
is deleted, its lock is gone, too: the process that first creates and locks it again goes on, and any other stops."""

import hashlib
import sqlite3
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from remuda.lib.files import file_identity
from remuda.manager.environments.agent_process import agent_data
from remuda.manager.errors import DataFolderError, FolderTakenError, JournalDamagedError
from remuda.manager.jobs.journal import LOCK_NAME, Journal, damaged_journals, lock_folder, set_aside
from remuda.manager.registration.system_id import keep_system_id, system_id
from remuda.telemetry.logs import logger


def jobs_folder(data: Path) -> Path:
    """Return the folder for local agent, working directories and caches: `DATA.jobs` beside the data folder, so that
    jobs survive its loss, or the data folder itself if it already contains an agent."""
    return data if agent_data(data).is_dir() else data.with_name(f"{data.name}.jobs")


class DataFolder:
    """The data folder of a manager. In a `with` block it is locked, and `journal` and `own_id` (system id) are set."""

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
        """Open the journal. A damaged file is replaced by an empty journal; running jobs are then recovered from their
        agents. Raises DataFolderError if that is not possible."""
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
        return damaged_journals(self.path / "journal.sqlite")

    @property
    def mark(self) -> str:
        """Short id for folder names; unlike the system id, it differs between managers on one machine."""
        return hashlib.sha256(f"{self.own_id}\0{self.path.absolute()}".encode()).hexdigest()[:8]

    def is_there(self) -> bool:
        """True if the lock file and the journal still exist at their paths, so that a new process would find them."""
        return file_identity(self.path / LOCK_NAME) == self._lock and self.journal.is_there()

    async def restore_if_removed(self, *, jobs: int) -> FolderTakenError | None:
        """If the folder was deleted, create it again with lock, system id and journal. `jobs` is the number of current
        jobs, for the log. Returns an error if another manager uses the folder now: this one must stop. Other failures
        are only logged."""
        if self.is_there():
            return None
        try:
            await self.renew()
        except FolderTakenError as error:
            self._log.error(
                "data folder was deleted and now belongs to another manager; stopping",
                folder=str(self.path),
                jobs=jobs,
                cause=str(error),
            )
            return error
        except (OSError, sqlite3.Error, DataFolderError) as error:
            if str(error) != self._problem:
                self._log.error(
                    "cannot recreate the deleted data folder; jobs wait until it succeeds",
                    folder=str(self.path),
                    cause=str(error),
                )
            self._problem = str(error)
        else:
            self._problem = ""
            self._log.error(
                "data folder was deleted; recreated it with all current jobs", folder=str(self.path), jobs=jobs
            )
        return None

    async def renew(self) -> None:
        """Create the missing parts of the folder again. Raises FolderTakenError if another manager has locked it
        meanwhile, and DataFolderError, OSError or sqlite3.Error for other failures."""
        if file_identity(self.path / LOCK_NAME) != self._lock:
            self._hold()
        keep_system_id(self.path, self.own_id)
        if not self.journal.is_there():
            await self.journal.renew()

    def _hold(self) -> None:
        self._held.enter_context(lock_folder(self.path))
        self._lock = file_identity(self.path / LOCK_NAME)
