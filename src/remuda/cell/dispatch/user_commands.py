"""Commands of users on jobs and pipelines: cancel, play, retry, unschedule, prioritize. They raise InvalidError if the
state of the job does not allow a command. Pipelines are canceled by `JobChanges.cancel_pipeline`."""

from collections.abc import Callable, Mapping
from typing import Any

from remuda.cell.core.jobs import lifecycle
from remuda.cell.dispatch.job_changes import JobChanges, load_job, load_pipeline
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.store.ports import JobStore, PipelineStore
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes
from remuda.lib.clock import Clock
from remuda.model.job import JobId, PipelineId


class UserCommands:
    """Executes commands of users. Each command returns the job or pipeline as it is stored afterwards."""

    def __init__(
        self, jobs: JobStore, pipelines: PipelineStore, memory: DispatchMemory, changes: JobChanges, clock: Clock
    ) -> None:
        self._jobs = jobs
        self._pipelines = pipelines
        self._memory = memory
        self._changes = changes
        self._clock = clock

    async def cancel_job(self, job_id: int, *, force: bool = False) -> Job:
        """Cancel a job unless ended: its runner stops it (`canceling`) if it can; else, or with `force`, at once."""
        return await self._change(
            job_id, lambda family, number, now: lifecycle.cancel(family, number, now, force=force)
        )

    async def play_job(
        self, job_id: int, variables: Mapping[str, str] | None = None, inputs: Mapping[str, Any] | None = None
    ) -> Job:
        """Start a manual or delayed job now. `variables` are set for this job only; `inputs` have been checked."""
        own = variables or {}
        return await self._change(job_id, lambda family, number, now: lifecycle.play(family, number, now, own, inputs))

    async def unschedule_job(self, job_id: int) -> Job:
        """Turn a delayed job into a manual one."""
        return await self._change(job_id, lifecycle.unschedule)

    async def prioritize_job(self, job_id: int, priority: int) -> Job:
        """Set a job's priority in the queue. InvalidError for a trigger, assigned or ended job, or a bad value."""
        await load_job(self._jobs, job_id)
        now = self._clock.now()
        changed = await self._jobs.change_job(JobId(job_id), lambda job: lifecycle.prioritize(job, priority, now))
        if changed is not None:
            self._memory.announce([changed])
        return await load_job(self._jobs, job_id)

    async def retry_job(self, job_id: int, inputs: Mapping[str, Any] | None = None) -> Job:
        """Retry an ended job: create a new job that takes its place in the pipeline, and return that. `inputs`, which
        have been checked, replace values of the old job."""
        old = await load_job(self._jobs, job_id)
        applied = await self._changes.change(
            old.pipeline_id, lambda family: lifecycle.retry(family, old.id, self._clock.now(), inputs)
        )
        return next(job for job in applied.jobs if job.name == old.name and job.id != old.id)

    async def retry_pipeline(self, pipeline_id: int) -> Pipeline:
        """Retry all failed and canceled jobs of a pipeline."""
        number = PipelineId(pipeline_id)
        await self._changes.change(number, lambda family: lifecycle.retry_all(family, self._clock.now()))
        return await load_pipeline(self._pipelines, number)

    async def _change(self, job_id: int, decide: Callable[[Family, JobId, float], Changes]) -> Job:
        job = await load_job(self._jobs, job_id)
        await self._changes.change(job.pipeline_id, lambda family: decide(family, job.id, self._clock.now()))
        return await load_job(self._jobs, job_id)
