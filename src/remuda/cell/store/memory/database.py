"""An in-memory implementation of the store's interface `Database`, for unit tests. No method gives control back to the
event loop, so no other task runs during a transaction. There is no rollback: the methods of the store check all
conditions before their first change, so a transaction that raises has changed nothing."""

import operator
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from remuda.cell.core.jobs.resource_groups import goes_before
from remuda.cell.store.ports.database import Comparison, Lock, Table, Transaction
from remuda.cell.store.ports.tables import (
    JOBS,
    MANAGERS,
    NAMESPACES,
    ORGANIZATIONS,
    PIPELINES,
    PROJECTS,
    RESOURCE_GROUPS,
    USERS,
)
from remuda.cell.values import Family, Job, Page, Pipeline
from remuda.cell.values.changes import OtherChanges
from remuda.cell.values.deployments import DeploymentFilter
from remuda.cell.values.people import FIRST_NAMESPACE, FIRST_ORGANIZATION, FIRST_USER, RunnerFilter
from remuda.lib.ids import range_of_cell
from remuda.model.job import OCCUPYING, JobId, PipelineId, ProjectId, RunnerId
from remuda.pipeline import JobSpec

T = TypeVar("T")

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    "in": lambda value, values: value in values,
}


class MemoryDatabase:
    """The tables of a cell as dictionaries: values by table and key, in the order in which they were added."""

    def __init__(self, cell_id: int) -> None:
        self._ids = range_of_cell(cell_id)
        self._last_ids: dict[str, int] = {}
        self._tables: defaultdict[str, dict[tuple[Any, ...], Any]] = defaultdict(dict)
        self.specs: dict[JobId, JobSpec] = {}
        self.job_ids: dict[PipelineId, dict[JobId, None]] = {}
        """Ids of all jobs of a pipeline, including retried ones."""
        self._put(ORGANIZATIONS, FIRST_ORGANIZATION)
        self._put(NAMESPACES, FIRST_NAMESPACE)
        self._put(USERS, FIRST_USER)

    async def close(self) -> None:
        return

    async def warm_up(self) -> None:
        return

    async def check_writable(self) -> None:
        return

    async def watch_changes(self) -> AsyncGenerator[OtherChanges, None]:
        """Yield nothing and end at once: no other process can change this store."""
        changes: Sequence[OtherChanges] = ()
        for change in changes:
            yield change

    def announce_runner(self, runner_id: RunnerId) -> None:
        """Do nothing: no other process can use this store."""

    async def change(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], lock: Lock | None = None) -> T:
        return await work(self)

    def values(self, table: Table[T]) -> list[T]:
        return list(self._tables[table.name].values())

    def get(self, table: Table[T], *key: Any) -> T | None:
        value: T | None = self._tables[table.name].get(key)
        return value

    async def find(self, table: Table[T], **columns: Any) -> T | None:
        if tuple(columns) == table.key:
            return self.get(table, *columns.values())
        return next(self._match(table, columns), None)

    async def find_locked(self, table: Table[T], **columns: Any) -> T | None:
        return await self.find(table, **columns)

    async def find_all(
        self,
        table: Table[T],
        *,
        where: Comparison | None = None,
        order: Sequence[str] = (),
        limit: int | None = None,
        **columns: Any,
    ) -> list[T]:
        values = list(self._match(table, columns, where))
        for column in reversed(order):
            name, _, direction = column.partition(" ")
            if name != "number":
                values = sorted(values, key=_reader(table, name), reverse=bool(direction))
        return values[:limit]

    def _match(self, table: Table[T], columns: Mapping[str, Any], where: Comparison | None = None) -> Iterator[T]:
        in_key = [(table.key.index(name), expected) for name, expected in columns.items() if name in table.key]
        tests: list[tuple[Callable[[T], Any], Callable[[Any, Any], bool], Any]]
        tests = [(_reader(table, name), operator.eq, columns[name]) for name in columns if name not in table.key]
        if where is not None:
            tests.append((_reader(table, where[0]), _COMPARE[where[1]], where[2]))
        for key, value in list(self._tables[table.name].items()):
            if all(key[place] == expected for place, expected in in_key) and all(
                (field := read(value)) is not None and test(field, expected) for read, test, expected in tests
            ):
                yield value

    async def find_page(
        self, table: Table[T], page: Page, selection: Any, *, order: str | None = None
    ) -> tuple[list[T], int]:
        values = self._fit(table, selection)
        if isinstance(selection, DeploymentFilter):
            # In reverse order, like the values of other tables, which are listed newest first.
            deployments: list[Any] = list(values)
            deployments.sort(
                key=lambda row: selection.sort_key(row, self.get(JOBS, row.job_id)), reverse=selection.ascending
            )
            values = deployments
        return cut_page(sorted(values, key=_reader(table, order)) if order else values[::-1], page)

    async def has_match(self, table: Table[Any], selection: Any) -> bool:
        return bool(self._fit(table, selection))

    def _fit(self, table: Table[T], selection: Any) -> list[T]:
        if isinstance(selection, DeploymentFilter):
            deployments: list[Any] = self.values(table)
            return [row for row in deployments if selection.fits(row, self.get(JOBS, row.job_id))]
        if not isinstance(selection, RunnerFilter):
            return [value for value in self.values(table) if selection.fits(value)]
        contacts: dict[RunnerId, float] = {}
        versions: dict[RunnerId, set[str]] = {}
        for manager in self.values(MANAGERS):
            versions.setdefault(manager.runner_id, set()).add(manager.runner_version)
            contacts[manager.runner_id] = max(contacts.get(manager.runner_id, 0), manager.contacted_at)
        runners: list[Any] = self.values(table)
        return [
            runner for runner in runners if selection.fits(runner, contacts.get(runner.id), versions.get(runner.id, ()))
        ]

    async def add(self, table: Table[T], *values: T) -> None:
        for value in values:
            self._put(table, value)

    async def add_if_absent(self, table: Table[T], value: T) -> bool:
        row = table.columns(value)
        if self.get(table, *(row[name] for name in table.key)) is not None:
            return False
        if table.unique and await self.find(table, **{table.unique: row[table.unique]}) is not None:
            return False
        self._put(table, value)
        return True

    async def put(self, table: Table[T], value: T) -> None:
        self._put(table, value)

    def _put(self, table: Table[T], value: T) -> None:
        row = table.columns(value)
        self._tables[table.name][tuple(row[name] for name in table.key)] = value

    async def put_inside(self, table: Table[T], value: T, owner: Table[Any], owner_id: int) -> bool:
        if self.get(owner, owner_id) is None:
            return False
        self._put(table, value)
        return True

    async def update(self, table: Table[T], value: T) -> bool:
        row = table.columns(value)
        if self.get(table, *(row[name] for name in table.key)) is None:
            return False
        self._put(table, value)
        return True

    async def remove(self, table: Table[Any], **columns: Any) -> int:
        return self._remove(table, list(self._match(table, columns)))

    async def remove_some(self, table: Table[Any], where: Comparison, *, limit: int) -> int:
        return self._remove(table, list(self._match(table, {}, where))[:limit])

    def _remove(self, table: Table[T], values: Sequence[T]) -> int:
        for value in values:
            row = table.columns(value)
            del self._tables[table.name][tuple(row[name] for name in table.key)]
        return len(values)

    async def draw_id(self, table: Table[Any]) -> int:
        number = self._ids.after(self._last_ids.get(table.name))
        self._last_ids[table.name] = number
        return number

    async def draw_pipeline(self, project_id: ProjectId) -> tuple[int, PipelineId] | None:
        if self.get(PROJECTS, project_id) is None:
            return None
        iids = (old.iid for old in self.values(PIPELINES) if old.project_id == project_id)
        return max(iids, default=0) + 1, PipelineId(await self.draw_id(PIPELINES))

    async def draw_job_ids(self, count: int) -> Sequence[JobId]:
        return [JobId(await self.draw_id(JOBS)) for _ in range(count)]

    async def read_family(self, pipeline: Pipeline) -> Family:
        job_ids = self.job_ids.get(pipeline.id, {})
        tries = (self._tables[JOBS.name][job_id,] for job_id in job_ids)
        jobs = tuple(job for job in tries if not job.retried)
        return Family(pipeline=pipeline, jobs=jobs, taken=await self.find_taken_groups(pipeline, jobs))

    async def find_taken_groups(self, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
        groups = {job.resource_group for job in jobs if job.resource_group}
        if not groups:
            return frozenset()
        stored = await self.find_all(RESOURCE_GROUPS, project_id=pipeline.project_id)
        modes = {group.key: group.process_mode for group in stored}
        return frozenset(
            job.resource_group
            for job in self.values(JOBS)
            if job.resource_group in groups
            and job.project_id == pipeline.project_id
            and job.pipeline_id != pipeline.id
            and (job.state in OCCUPYING or goes_before(job, pipeline.id, modes.get(job.resource_group, "")))
        )

    async def add_jobs(self, jobs: Sequence[tuple[Job, JobSpec]]) -> None:
        for job, spec in jobs:
            self._put(JOBS, job)
            self.specs[job.id] = spec
            self.job_ids.setdefault(job.pipeline_id, {})[job.id] = None

    async def update_job(self, job: Job) -> None:
        self._tables[JOBS.name][job.id,] = job


def _reader(table: Table[T], name: str) -> Callable[[T], Any]:
    """Return a function that reads the column `name` of a stored value, or else the attribute with that name."""

    def read(value: T) -> Any:
        row = table.columns(value)
        return row[name] if name in row else getattr(value, name)

    return read


def cut_page(ordered: list[T], page: Page) -> tuple[list[T], int]:
    """Return one page of values with ids, and how many are in its range of ids (0 if the page asks for no count)."""
    values: list[Any] = ordered
    if page.ascending is not None:
        values = sorted(values, key=lambda value: value.id, reverse=not page.ascending)
    if page.after is not None:
        values = [value for value in values if value.id > page.after]
    if page.before is not None:
        values = [value for value in values if value.id < page.before]
    start = (page.number - 1) * page.size
    return values[start : start + page.size], len(values) if page.counted else 0
