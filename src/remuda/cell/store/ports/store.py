"""The store of a cell: seven ports by subject, and what concerns the database as a whole."""

from collections.abc import AsyncGenerator, Collection
from typing import Protocol

from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.people import PeopleStore
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.ports.projects import ProjectStore
from remuda.cell.store.ports.runners import RunnerStore
from remuda.cell.store.ports.schedules import ScheduleStore
from remuda.cell.store.ports.settings import SettingStore
from remuda.model.job import JobId


class Store(Protocol):
    """Everything that must survive the process, except traces and blobs."""

    @property
    def jobs(self) -> JobStore: ...
    @property
    def pipelines(self) -> PipelineStore: ...
    @property
    def projects(self) -> ProjectStore: ...
    @property
    def people(self) -> PeopleStore: ...
    @property
    def runners(self) -> RunnerStore: ...
    @property
    def schedules(self) -> ScheduleStore: ...
    @property
    def settings(self) -> SettingStore: ...

    async def close(self) -> None: ...

    async def warm_up(self) -> None:
        """Do work that the first calls would otherwise wait for, such as connecting. Stores nothing."""
        ...

    async def check_writable(self) -> None:
        """Commit a small write. Raises StoreError when that fails (full disk, read-only)."""
        ...

    def watch_changes(self) -> AsyncGenerator[Collection[JobId], None]:
        """Ids of jobs that other processes of this cell stored. They are hints: some are never reported.

        An empty collection means that some may have been missed. Ends at once if only one process can use the store.
        """
        ...
