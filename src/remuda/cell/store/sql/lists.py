"""Lists of jobs and pipelines, for both SQL databases."""

from abc import ABC
from collections.abc import Sequence

from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.sql.filters import Conditions, conditions, pipeline_order
from remuda.cell.store.sql.rows import SqlDatabase
from remuda.cell.values import ALL_JOBS, ALL_PIPELINES, Job, JobFilter, Page, Pipeline, PipelineFilter
from remuda.model.job import JobState, ProjectId


class SqlJobs(JobStore, ABC):
    """Jobs of a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self._sql = database

    async def list_jobs(self, page: Page, selection: JobFilter = ALL_JOBS) -> tuple[Sequence[Job], int]:
        dialect = self._sql.dialect
        where: Conditions = {}
        if selection.project_id is not None:
            # With an index on the project, SQLite may read all its jobs to find those of one pipeline.
            column = "project_id" if selection.pipeline_id is None else dialect.without_index("project_id")
            where[f"{column} = ?"] = selection.project_id
        if selection.pipeline_id is not None:
            where["pipeline_id = ?"] = selection.pipeline_id
        states = list(selection.states)
        if selection.runner_id is not None:
            states = states or list(JobState)  # the index of a runner's jobs has them by state
        is_merged = selection.pipeline_id is None and selection.project_ids is None
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
        return await self._sql.select_page(Job, "jobs", where, page, "id DESC", states if is_merged else ())


class SqlPipelines(PipelineStore, ABC):
    """Pipelines of a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self._sql = database

    async def list_pipelines(
        self, project_id: ProjectId, page: Page, selection: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        where: Conditions = {"project_id = ?": project_id, **conditions(selection, self._sql.dialect)}
        return await self._sql.select_page(Pipeline, "pipelines", where, page, pipeline_order(selection))
