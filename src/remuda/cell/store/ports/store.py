"""The store of a cell: interfaces ("ports") over one database, such as those of jobs and of pipelines."""

from collections.abc import AsyncGenerator

from remuda.cell.store.ports.database import Database
from remuda.cell.store.ports.deployments import DeploymentStore
from remuda.cell.store.ports.hooks import HookStore
from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.lfs import LfsStore
from remuda.cell.store.ports.people import PeopleStore
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.ports.projects import ProjectStore
from remuda.cell.store.ports.runners import RunnerListener, RunnerStore
from remuda.cell.store.ports.schedules import ScheduleStore
from remuda.cell.store.ports.sessions import SessionStore
from remuda.cell.store.ports.settings import SettingStore
from remuda.cell.values.changes import OtherChanges


class Store:
    """Stores the data of a cell, except logs and the files of artifacts and LFS. An attribute for each subject."""

    def __init__(self, database: Database, jobs: JobStore, pipelines: PipelineStore) -> None:
        self.jobs = jobs
        self.pipelines = pipelines
        self.projects = ProjectStore(database)
        self.people = PeopleStore(database)
        self.runner_listeners: list[RunnerListener] = []
        """Called with the id of each runner that this process has changed or removed."""
        self.runners = RunnerStore(database, self.runner_listeners)
        self.schedules = ScheduleStore(database)
        self.deployments = DeploymentStore(database)
        self.settings = SettingStore(database)
        self.lfs = LfsStore(database)
        self.hooks = HookStore(database)
        self.sessions = SessionStore(database)
        self.database = database

    async def close(self) -> None:
        await self.database.close()

    async def warm_up(self) -> None:
        """Do work in advance that the first calls would otherwise wait for, such as connecting. Changes no data."""
        await self.database.warm_up()

    async def check_writable(self) -> None:
        """Commit a small write. Raises StoreError if the store accepts no writes (full disk, read-only)."""
        await self.database.check_writable()

    def watch_changes(self) -> AsyncGenerator[OtherChanges, None]:
        """Yield ids of jobs and runners that other processes of this cell have changed. Notifications may get lost: a
        value without ids means that the caller may have missed some. Ends at once if only one process can use the
        store."""
        return self.database.watch_changes()
