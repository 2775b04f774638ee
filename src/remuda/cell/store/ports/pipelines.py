"""The store's interface to pipelines, and to changes that concern several jobs of a pipeline (`change_family`)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.pipelines.schedules import with_pipeline
from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports.database import Database, Lock, Transaction
from remuda.cell.store.ports.deployments import add_rows_of_jobs
from remuda.cell.store.ports.tables import PIPELINES, SCHEDULES, SEEN_REFS, SeenRef
from remuda.cell.values import ALL_PIPELINES, Family, NewJob, Page, Pipeline, PipelineFilter, Schedule
from remuda.cell.values.changes import Applied, Changes
from remuda.model.job import JobId, PipelineId, ProjectId


class PipelineStore(ABC):
    """Stores and finds pipelines and families. A family is a pipeline with the newest attempt of each of its jobs."""

    def __init__(self, database: Database) -> None:
        self._rows = database

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
        """Store a pipeline with its jobs, assign ids, and enqueue the jobs that can start (`lifecycle.begin`). `sees`
        is the full ref and commit of a push, recorded so that it starts no second pipeline. `schedule` has its next run
        time, `due_at` is the time of this run (None: a user started it). If a pipeline with the same `upstream_job_id`
        exists, it is returned and nothing is stored. Raises NotFoundError if there is no such project, ConflictError if
        the stored schedule is not due at `due_at`: another process has run it, or a user has changed it."""
        owner = pipeline.project_id

        async def add(rows: Transaction) -> Family:
            upstream = pipeline.upstream_job_id
            if upstream is not None and (started := await rows.find(PIPELINES, upstream_job_id=upstream)):
                return await rows.read_family(started)
            drawn = await rows.draw_pipeline(owner)
            if drawn is None:
                raise NotFoundError(f"there is no project {owner}")
            added = replace(pipeline, iid=drawn[0], id=drawn[1])
            ids = await rows.draw_job_ids(len(jobs))
            created = tuple(lifecycle.new_job(new, added, id_, now) for new, id_ in zip(jobs, ids, strict=True))
            occupied = await rows.find_taken_groups(added, created)
            family = _begin(Family(pipeline=added, jobs=created, taken=occupied), now)
            if schedule and (stored := await rows.find_locked(SCHEDULES, id=schedule.id)):
                await rows.update(SCHEDULES, with_pipeline(stored, schedule, added.id, due_at=due_at))
            await rows.add(PIPELINES, family.pipeline)
            await rows.add_jobs([(job, new.spec) for job, new in zip(family.jobs, jobs, strict=True)])
            await add_rows_of_jobs(rows, family.jobs, added, now=now)
            if sees:
                await rows.put(SEEN_REFS, SeenRef(owner, *sees))
            return family

        return await self._rows.change(add, Lock("project", owner))

    async def add_external_pipeline(self, pipeline: Pipeline) -> Pipeline:
        """Store a pipeline without jobs, for a commit whose checks another system runs, with new ids. If the project
        has a pipeline of the same ref and commit already, the newest one is returned, and nothing is stored. Raises
        NotFoundError if there is no such project."""
        owner = pipeline.project_id

        async def add(rows: Transaction) -> Pipeline:
            key: dict[str, Any] = {"project_id": owner, "sha": pipeline.sha, "ref": pipeline.ref, "is_child": 0}
            if existing := await rows.find_all(PIPELINES, order=("id DESC",), limit=1, **key):
                return existing[0]
            drawn = await rows.draw_pipeline(owner)
            if drawn is None:
                raise NotFoundError(f"there is no project {owner}")
            added = replace(pipeline, iid=drawn[0], id=drawn[1])
            await rows.add(PIPELINES, added)
            return added

        return await self._rows.change(add, Lock("project", owner))

    async def draw_status_id(self) -> JobId:
        """Return a new id for an external status. Ids of jobs and statuses are from one range."""

        async def draw(rows: Transaction) -> JobId:
            return (await rows.draw_job_ids(1))[0]

        return await self._rows.change(draw)

    @abstractmethod
    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None: ...

    @abstractmethod
    async def list_pipelines(
        self, project_id: ProjectId, page: Page, selection: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        """Return one page of a project's pipelines that match `selection`, in its order, and the number of matches."""

    @abstractmethod
    async def list_recent_pipelines(
        self, project_ids: Collection[ProjectId] | None, page: Page, selection: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        """Return one page of the pipelines of these projects (None: all) that match `selection`, newest first, and the
        number of matches. The order of `selection` is ignored."""

    @abstractmethod
    async def list_open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        """Return the pipelines of a ref that have not ended, oldest first."""

    async def find_downstream(self, upstream_job_id: JobId) -> Pipeline | None:
        return await self._rows.find(PIPELINES, upstream_job_id=upstream_job_id)

    @abstractmethod
    async def load_family(self, pipeline_id: PipelineId) -> Family | None: ...

    @abstractmethod
    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Store what `decide` returns for a pipeline and the newest attempts of its jobs (the family), in a
        transaction. Returns what was stored. Raises NotFoundError if the pipeline does not exist."""

    @abstractmethod
    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        """Remove a pipeline with all its jobs, including retried ones, their results, artifact rows and deployments.
        Returns False if the pipeline does not exist."""

    @abstractmethod
    async def count_pipelines(self) -> Mapping[str, int]:
        """Return the number of pipelines in each status, without statuses in which a pipeline has ended."""


def _begin(family: Family, now: float) -> Family:
    changes = lifecycle.begin(family, now)
    begun = {job.id: job for job in changes.jobs}
    jobs = tuple(begun.get(job.id, job) for job in family.jobs)
    return replace(family, pipeline=changes.pipeline or family.pipeline, jobs=jobs)
