"""What people want of jobs and pipelines: cancel, play, retry, unschedule.

Decided here is nothing but what is read again for the answer; `core.lifecycle` decides, and says InvalidError where a
wish makes no sense. The HTTP edge calls this.
"""

from collections.abc import Callable, Mapping

from remuda.cell.core.jobs import lifecycle
from remuda.cell.dispatch.job_changes import Motion
from remuda.cell.values import Family, Job, Pipeline
from remuda.cell.values.changes import Changes
from remuda.model.job import JobId, PipelineId


class Orders(Motion):
    """The part of dispatch that does what people ask for. Pipelines are canceled by `Motion`, which needs that too."""

    async def cancel_job(self, job_id: int, *, force: bool = False) -> Job:
        """Stop a job: gracefully where its runner can, else or by `force` at once. One that is over stays as it is."""
        return await self._act(job_id, lambda family, found, now: lifecycle.cancel(family, found, now, force=force))

    async def play_job(self, job_id: int, variables: Mapping[str, str] | None = None) -> Job:
        """Start a manual or delayed job now, with variables that it alone has."""
        given = variables or {}
        return await self._act(job_id, lambda family, found, now: lifecycle.play(family, found, now, given))

    async def unschedule_job(self, job_id: int) -> Job:
        """Let a delayed job wait for a person instead."""
        return await self._act(job_id, lifecycle.unschedule)

    async def prioritize_job(self, job_id: int, priority: int) -> Job:
        """Let a job that no runner has yet go before others, or after them."""
        await self._job(job_id)
        now = self._clock.now()
        changed = await self._store.change_job(JobId(job_id), lambda job: lifecycle.prioritize(job, priority, now))
        if changed is not None:
            await self.announce([changed])
        return await self._job(job_id)

    async def retry_job(self, job_id: int) -> Job:
        """Run a job once more, as a new one, which is returned."""
        old = await self._job(job_id)
        applied = await self.change(old.pipeline_id, lambda family: lifecycle.retry(family, old.id, self._clock.now()))
        return next(job for job in applied.jobs if job.name == old.name and job.id != old.id)

    async def retry_pipeline(self, pipeline_id: int) -> Pipeline:
        """Run what failed or was canceled once more."""
        found = PipelineId(pipeline_id)
        await self.change(found, lambda family: lifecycle.retry_all(family, self._clock.now()))
        return await self._pipeline(found)

    async def _act(self, job_id: int, decide: Callable[[Family, JobId, float], Changes]) -> Job:
        job = await self._job(job_id)
        await self.change(job.pipeline_id, lambda family: decide(family, job.id, self._clock.now()))
        return await self._job(job_id)
