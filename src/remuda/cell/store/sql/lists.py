"""Lists of jobs and pipelines, for both SQL databases."""

from abc import ABC
from collections.abc import Collection, Sequence

from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.sql.filters import Conditions, conditions, pipeline_order
from remuda.cell.store.sql.rows import SqlDatabase
from remuda.cell.values import ALL_PIPELINES, Job, Page, Pipeline, PipelineFilter
from remuda.model.job import JobState, PipelineId, ProjectId, RunnerId


class SqlJobs(JobStore, ABC):
    """Jobs of a SQL database."""

    def __init__(self, database: SqlDatabase) -> None:
        super().__init__(database)
        self._sql = database

    async def list_jobs(
        self,
        page: Page,
        *,
        project_id: ProjectId | None = None,
        pipeline_id: PipelineId | None = None,
        states: Sequence[str] = (),
        with_retried: bool = False,
        is_trigger: bool | None = None,
        runner_id: RunnerId | None = None,
        project_ids: Collection[ProjectId] | None = None,
    ) -> tuple[Sequence[Job], int]:
        dialect = self._sql.dialect
        where: Conditions = {}
        if project_id is not None:
            # With an index on the project, SQLite may read all its jobs to find those of one pipeline.
            column = "project_id" if pipeline_id is None else dialect.without_index("project_id")
            where[f"{column} = ?"] = project_id
        if pipeline_id is not None:
            where["pipeline_id = ?"] = pipeline_id
        if runner_id is not None:
            states = states or list(JobState)  # the index of a runner's jobs has them by state
        is_merged = pipeline_id is None and project_ids is None
        if states and not is_merged:
            where |= dialect.among("state", list(states))
        if not with_retried:
            where["retried = 0"] = None
        if is_trigger is not None:
            where["is_trigger = ?"] = int(is_trigger)
        if runner_id is not None:
            where["runner_id = ?"] = runner_id
        if project_ids is not None:
            where |= dialect.among("project_id", list(project_ids), "bigint")
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
