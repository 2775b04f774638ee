"""Queries for lists of jobs and pipelines that are the same for SQLite and PostgreSQL."""

from abc import ABC
from collections.abc import Collection, Sequence

from remuda.cell.store.paging import read_in_pieces
from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.sql.filters import Conditions, conditions, pipeline_order
from remuda.cell.store.sql.rows import SqlDatabase
from remuda.cell.values import ALL_JOBS, ALL_PIPELINES, Job, JobFilter, Page, Pipeline, PipelineFilter
from remuda.model.job import JobId, JobState, ProjectId
from remuda.model.progress import OPEN

_ALL = Page(size=100_000, counted=False)


class SqlJobs(JobStore, ABC):
    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self._sql = database

    async def list_jobs(self, page: Page, selection: JobFilter = ALL_JOBS) -> tuple[Sequence[Job], int]:
        dialect = self._sql.dialect
        where: Conditions = {}
        if selection.project_id is not None:
            # With an index on the project, SQLite may read all its jobs to find those of one pipeline.
            of_pipelines = selection.pipeline_id is not None or selection.pipeline_ids is not None
            column = dialect.without_index("project_id") if of_pipelines else "project_id"
            where[f"{column} = ?"] = selection.project_id
        if selection.pipeline_id is not None:
            where["pipeline_id = ?"] = selection.pipeline_id
        states = list(selection.states)
        if selection.runner_id is not None:
            states = states or list(JobState)  # the index of a runner's jobs has them by state
        is_merged = selection.pipeline_id is None and selection.project_ids is None and selection.pipeline_ids is None
        if states and not is_merged:
            where |= dialect.among("state", states)
        if not selection.with_retried:
            where["retried = 0"] = None
        if selection.is_trigger is not None:
            where["is_trigger = ?"] = int(selection.is_trigger)
        if selection.runner_id is not None:
            where["runner_id = ?"] = selection.runner_id
        if selection.project_ids is not None:
            where |= dialect.among("project_id", list(selection.project_ids), "bigint")
        if selection.pipeline_ids is not None:
            where |= dialect.among("pipeline_id", list(selection.pipeline_ids), "bigint")
        if selection.name:
            where["name = ?"] = dialect.text(selection.name)
        if selection.stage:
            where[f"{dialect.field('stage', 'text')} = ?"] = selection.stage
        if selection.ref:
            where["ref = ?"] = dialect.text(selection.ref)
        return await self._sql.select_page(Job, "jobs", where, page, "id DESC", states if is_merged else ())

    async def find_newest_success(
        self, project_id: ProjectId, ref: str, name: str, *, tag: bool | None = None
    ) -> Job | None:
        text = self._sql.dialect.text
        where: Conditions = {
            "state = 'success'": None,
            "project_id = ?": project_id,
            "ref = ?": text(ref),
            "name = ?": text(name),
        }
        if tag is not None:
            where["? = (SELECT tag FROM pipelines WHERE id = jobs.pipeline_id)"] = int(tag)
        return await self._select_first(where, "id DESC")

    async def find_first_of_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Job | None:
        # `+ 0`: sort the few rows found instead of reading the project in the order of ids.
        return await self._select_first(self._in_group(project_id, group, states), "id + 0")

    async def list_jobs_of_group(
        self, project_id: ProjectId, group: str, states: Collection[JobState]
    ) -> Sequence[Job]:
        where = self._in_group(project_id, group, states)
        return (await self._sql.select_page(Job, "jobs", where, _ALL, "id + 0"))[0]

    def _in_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Conditions:
        dialect = self._sql.dialect
        where: Conditions = {"project_id = ?": project_id, "resource_group = ?": dialect.text(group)}
        return where | dialect.among("state", [state.value for state in states])

    async def _select_first(self, where: Conditions, order: str) -> Job | None:
        jobs, _ = await self._sql.select_page(Job, "jobs", where, Page(size=1, counted=False), order)
        return jobs[0] if jobs else None

    async def list_jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        ((among, values),) = self._sql.dialect.among("state", [state.value for state in states]).items()
        rows = await self._sql.fetch(f"SELECT id FROM jobs WHERE {among.replace('?', '$1')} ORDER BY id", values)
        return await read_in_pieces([JobId(row[0]) for row in rows], self.load_jobs, states)


class SqlPipelines(PipelineStore, ABC):
    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self._sql = database

    async def list_pipelines(
        self, project_id: ProjectId, page: Page, selection: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        where: Conditions = {"project_id = ?": project_id, **conditions(selection, self._sql.dialect)}
        return await self._sql.select_page(Pipeline, "pipelines", where, page, pipeline_order(selection))

    async def list_recent_pipelines(
        self, project_ids: Collection[ProjectId] | None, page: Page, selection: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        where = conditions(selection, self._sql.dialect)
        if project_ids is not None:
            where |= self._sql.dialect.among("project_id", list(project_ids), "bigint")
        return await self._sql.select_page(Pipeline, "pipelines", where, page, "id DESC")

    async def list_open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        dialect = self._sql.dialect
        where: Conditions = {"project_id = ?": project_id, "ref = ?": dialect.text(ref)}
        where |= dialect.among("status", sorted(OPEN))
        # `+ 0`: sort the few rows found instead of reading the project in the order of ids.
        return (await self._sql.select_page(Pipeline, "pipelines", where, _ALL, "id + 0"))[0]
