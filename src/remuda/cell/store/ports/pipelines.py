"""Pipelines, and decisions about all jobs of a pipeline."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from remuda.cell.values import ALL_PIPELINES, Family, NewJob, Page, Pipeline, PipelineFilter, Schedule
from remuda.cell.values.changes import Applied, Changes
from remuda.model.job import JobId, PipelineId, ProjectId


class PipelineStore(Protocol):
    """Pipelines and families. A family is a pipeline with the newest try of each of its jobs."""

    async def add_pipeline(
        self,
        pipeline: Pipeline,
        jobs: Sequence[NewJob],
        *,
        now: float,
        sees: tuple[str, str] | None = None,
        schedule: Schedule | None = None,
        due_at: float | None = None,
    ) -> Family:
        """Store a pipeline, its jobs, the seen ref and the schedule's next time, in one transaction.

        `sees` is the ref and commit that count as handled. `schedule` is the schedule with its next time; its row gets
        that time and the pipeline's id (`remuda.cell.core.pipelines.schedules.with_pipeline`). `due_at` is the time
        for which the schedule runs: ConflictError when the row has another time, because another process ran it.

        If a pipeline of this `upstream_job_id` exists, that one is returned and nothing is stored. Ids and the
        pipeline's iid come from the store. Jobs that can start are enqueued in the same transaction
        (`lifecycle.begin`).
        """
        ...

    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None: ...

    async def list_pipelines(
        self, project_id: ProjectId, page: Page, wanted: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        """One page and the total."""
        ...

    async def list_open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        """Pipelines of a ref that are not over, oldest first."""
        ...

    async def find_downstream(self, upstream_job_id: JobId) -> Pipeline | None:
        """The pipeline that a trigger job started."""
        ...

    async def load_family(self, pipeline_id: PipelineId) -> Family | None: ...

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Store what `decide` returns for the current family. NotFoundError when the pipeline does not exist."""
        ...

    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        """Remove it with all tries of its jobs, their results and artifact rows. False when it does not exist."""
        ...

    async def count_pipelines(self) -> Mapping[str, int]:
        """Number of pipelines by status, of those that are not over."""
        ...
