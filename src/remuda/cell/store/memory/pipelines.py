"""The in-memory implementation of the store's interface `PipelineStore`, for unit tests."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from remuda.cell.errors import NotFoundError
from remuda.cell.store.memory.database import MemoryDatabase, cut_page
from remuda.cell.store.ports.deployments import add_rows_of_jobs, change_environments
from remuda.cell.store.ports.pipelines import PipelineStore
from remuda.cell.store.ports.tables import ARTIFACTS, DEPLOYMENTS, JOBS, PIPELINES, RESULTS
from remuda.cell.values import ALL_PIPELINES, Family, Page, Pipeline, PipelineFilter
from remuda.cell.values.changes import Applied, Changes
from remuda.model.job import PipelineId, ProjectId
from remuda.model.progress import OVER


class MemoryPipelines(PipelineStore):
    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None:
        return self._database.get(PIPELINES, pipeline_id)

    async def list_pipelines(
        self, project_id: ProjectId, page: Page, selection: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        rows = [row for row in self._database.values(PIPELINES) if row.project_id == project_id and selection.fits(row)]
        rows.sort(key=lambda row: (getattr(row, selection.order_by), row.id), reverse=not selection.ascending)
        return cut_page(rows, page)

    async def list_recent_pipelines(
        self, project_ids: Collection[ProjectId] | None, page: Page, selection: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        rows = [row for row in self._database.values(PIPELINES) if selection.fits(row)]
        rows = [row for row in rows if project_ids is None or row.project_id in project_ids]
        return cut_page(sorted(rows, key=lambda row: row.id, reverse=True), page)

    async def list_open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        rows = (row for row in self._database.values(PIPELINES) if row.status not in OVER)
        return [row for row in rows if (row.project_id, row.ref) == (project_id, ref)]

    async def load_family(self, pipeline_id: PipelineId) -> Family | None:
        pipeline = self._database.get(PIPELINES, pipeline_id)
        return await self._database.read_family(pipeline) if pipeline else None

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        family = await self.load_family(pipeline_id)
        if family is None:
            raise NotFoundError(f"there is no pipeline {pipeline_id}")
        changes = decide(family)
        for job in changes.jobs:
            await self._database.update_job(job)
        ids = await self._database.draw_job_ids(len(changes.retries))
        new = [replace(retry.job, id=id_) for retry, id_ in zip(changes.retries, ids, strict=True)]
        specs = [self._database.specs[retry.of] for retry in changes.retries]
        await self._database.add_jobs(list(zip(new, specs, strict=True)))
        if new:
            await add_rows_of_jobs(self._database, new, family.pipeline, now=new[0].created_at)
        await change_environments(self._database, changes)
        if changes.pipeline:
            await self._database.put(PIPELINES, changes.pipeline)
        return Applied(jobs=(*changes.jobs, *new), pipeline=changes.pipeline)

    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        for job_id in self._database.job_ids.pop(pipeline_id, {}):
            self._database.specs.pop(job_id, None)
            await self._database.remove(JOBS, id=job_id)
            for table in (RESULTS, ARTIFACTS, DEPLOYMENTS):
                await self._database.remove(table, job_id=job_id)
        return bool(await self._database.remove(PIPELINES, id=pipeline_id))

    async def count_pipelines(self) -> Mapping[str, int]:
        return Counter(row.status for row in self._database.values(PIPELINES) if row.status not in OVER)
