"""The store's interface to jobs, their step results and the rows of their artifacts (the files are blobs). Each
database implements the abstract methods; SQLite and PostgreSQL share some of them (`store.sql.lists`)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

from remuda.cell.core.jobs.result_limits import select_results
from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports.database import Database, Transaction
from remuda.cell.store.ports.tables import ARTIFACTS, JOBS, RESULTS
from remuda.cell.values import ALL_JOBS, Artifact, Job, JobFilter, Page, Runner, StepResult
from remuda.cell.values.changes import JobArtifacts, PayloadParts
from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.pipeline import JobSpec


class JobStore(ABC):
    def __init__(self, database: Database) -> None:
        self._rows = database

    @abstractmethod
    async def load_job(self, job_id: JobId) -> Job | None: ...

    @abstractmethod
    async def load_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        """Return the jobs with these ids, oldest first. Ids that do not exist are left out."""

    @abstractmethod
    async def load_spec(self, job_id: JobId) -> JobSpec | None: ...

    @abstractmethod
    async def load_payload_parts(self, job: Job, settings: Collection[str] = ()) -> PayloadParts:
        """Return what a job's payload is built from: spec, pipeline, project, variables, and settings by name."""

    @abstractmethod
    async def list_jobs(self, page: Page, selection: JobFilter = ALL_JOBS) -> tuple[Sequence[Job], int]:
        """Return one page of the jobs that match `selection`, newest first, and the total number of matches."""

    @abstractmethod
    async def list_jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        """Return all jobs that are in one of these states, oldest first."""

    @abstractmethod
    async def list_coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        """Return the jobs in these states whose pipelines have not ended, oldest first. Leaves out pipelines that wait
        for a manual job since before `held_since`: perhaps it is never started, so there may be any number of them."""

    @abstractmethod
    async def count_jobs(self) -> Mapping[str, int]:
        """Return the number of jobs in each state, without states in which a job has ended."""

    @abstractmethod
    async def find_newest_success(
        self, project_id: ProjectId, ref: str, name: str, *, tag: bool | None = None
    ) -> Job | None:
        """Return the newest successful job of a project with this name on the ref `ref`; None if there is none. `ref`
        is a tag (`tag` is True), a branch (False) or either of them (None)."""

    @abstractmethod
    async def find_first_of_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Job | None:
        """Return the oldest job that has this resource group and is in one of these states; None if there is none."""

    @abstractmethod
    async def list_jobs_of_group(
        self, project_id: ProjectId, group: str, states: Collection[JobState]
    ) -> Sequence[Job]:
        """Return the jobs that have this resource group and are in one of these states, oldest first."""

    @abstractmethod
    async def find_leased_job(self, runner_id: RunnerId, request_id: str) -> Job | None:
        """Return the job leased for this request and not acknowledged yet, for a request that a runner repeats."""

    @abstractmethod
    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        """Call the function `decide` with the stored job, and store and return its result. Returns None, and stores
        nothing, if the result is None or there is no such job. `known` is the job as the caller last read it. If the
        stored job still equals it, the job is not read again."""

    @abstractmethod
    async def end_beside(self, known: Job, ended: Job) -> bool:
        """Store the success of a job without reading the other jobs of its pipeline. `known` is the job as read,
        `ended` the same job after its end (`lifecycle.finish_alone`). Returns True only if the stored job still equals
        `known`, and a job of the pipeline with a higher id is pending, leased or running; its end then sets the
        pipeline's status. Otherwise nothing is stored, and the caller must use `change_family`."""

    @abstractmethod
    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> PayloadParts | None:
        """Store that a job was given to a runner: its change from `known` (as read) to `leased`. Returns the stored
        values for its payload. Returns None, and stores nothing, if the stored job differs from `known` or the stored
        runner from `runner`, or if the same request of the runner already has another job."""

    async def add_results(self, job_id: JobId, results: Sequence[StepResult], *, limit_bytes: int) -> int:
        """Store the step results whose sequence numbers continue those of the stored results without a gap; the others
        are ignored. Returns the next expected sequence number. `limit_bytes` limits the total size of a job's results
        (`core.jobs.result_limits`). Raises NotFoundError if the job does not exist."""

        async def add(rows: Transaction) -> int:
            await _lock_job(rows, job_id)
            last = await rows.find_all(RESULTS, order=("seq DESC",), limit=1, job_id=job_id)
            new, following = select_results(last[0] if last else None, results, limit_bytes)
            await rows.add(RESULTS, *new)
            return following

        return await self._rows.change(add)

    async def list_results(self, job_id: JobId, *, after: int = 0, limit: int | None = None) -> Sequence[StepResult]:
        """Return at most `limit` step results of a job with sequence numbers above `after`, in order."""
        return await self._rows.find_all(RESULTS, where=("seq", ">", after), order=("seq",), limit=limit, job_id=job_id)

    async def put_artifact(self, artifact: Artifact) -> Artifact:
        """Store an artifact and return it. If the job already has an artifact of this type, nothing is changed and that
        one is returned. Raises NotFoundError if the job does not exist."""

        async def put(rows: Transaction) -> Artifact:
            await _lock_job(rows, artifact.job_id)
            if old := await rows.find(ARTIFACTS, job_id=artifact.job_id, type=artifact.type):
                return old
            await rows.add(ARTIFACTS, artifact)
            return artifact

        return await self._rows.change(put)

    async def list_artifacts(self, job_id: JobId) -> Sequence[Artifact]:
        return await self._rows.find_all(ARTIFACTS, order=("type",), job_id=job_id)

    async def list_artifacts_of(self, job_ids: Collection[JobId]) -> Sequence[Artifact]:
        """Return the artifacts of these jobs, in the order of their ids."""
        if not job_ids:
            return []
        return await self._rows.find_all(ARTIFACTS, where=("job_id", "in", list(job_ids)), order=("job_id", "type"))

    async def list_replaced_attempts(self, pipeline_id: PipelineId, *, limit: int) -> Sequence[Job]:
        """Return at most `limit` jobs of a pipeline that newer attempts have replaced, oldest first."""
        return await self._rows.find_all(JOBS, order=("id",), limit=limit, pipeline_id=pipeline_id, retried=1)

    async def list_due_artifacts(self, now: float, *, limit: int) -> Sequence[Artifact]:
        """Return at most `limit` artifacts whose next expiry check (`look_at`) is due, the longest due first."""
        order = ("look_at", "job_id", "type")
        return await self._rows.find_all(ARTIFACTS, where=("look_at", "<=", now), order=order, limit=limit)

    async def change_artifacts(
        self, job_id: JobId, decide: Callable[[Job, Sequence[Artifact]], JobArtifacts | None]
    ) -> Sequence[Artifact]:
        """Store what `decide` returns for a job and its artifacts (None: no change). Removes the rows of artifacts that
        are not in the result and returns them, so that the caller can delete their files."""

        async def change(rows: Transaction) -> Sequence[Artifact]:
            job = await rows.find_locked(JOBS, id=job_id)
            before = await rows.find_all(ARTIFACTS, order=("type",), job_id=job_id)
            result = decide(job, before) if job else None
            if result is None:
                return ()
            await rows.update_job(result.job)
            after = {artifact.type: artifact for artifact in result.artifacts}
            removed = [artifact for artifact in before if artifact.type not in after]
            for artifact in removed:
                await rows.remove(ARTIFACTS, job_id=job_id, type=artifact.type)
            for artifact in before:
                if artifact.type in after and after[artifact.type] != artifact:
                    await rows.update(ARTIFACTS, after[artifact.type])
            return removed

        return await self._rows.change(change)


async def _lock_job(rows: Transaction, job_id: JobId) -> None:
    if await rows.find_locked(JOBS, id=job_id) is None:
        raise NotFoundError(f"there is no job {job_id}")
