"""Stores changes of jobs and pipelines, then applies their consequences. `core` decides, the store applies the decision
in one transaction. Then this module updates the dispatch memory, seals logs of ended jobs (durable, no more output),
queues trigger jobs, gives freed resource groups to waiting jobs and cancels child pipelines. If the process dies in
between, `timeouts` and `operations.upkeep` catch up, but do not cancel child pipelines of ended trigger jobs."""

from collections.abc import Callable

from msgspec.structs import replace

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.errors import NotFoundError, StoreError
from remuda.cell.store.ports import JobStore, PipelineStore
from remuda.cell.traces.port import Traces
from remuda.cell.values import Family, Job, JobFilter, Page, Pipeline
from remuda.cell.values.changes import Applied, Changes
from remuda.lib.clock import Clock
from remuda.model.job import FINAL, OCCUPYING, FailureReason, JobId, JobState, PipelineId, ProjectId
from remuda.model.progress import OVER
from remuda.telemetry.logs import logger

_log = logger("cell")


class JobChanges:
    def __init__(
        self, jobs: JobStore, pipelines: PipelineStore, traces: Traces, memory: DispatchMemory, clock: Clock
    ) -> None:
        self._jobs = jobs
        self._pipelines = pipelines
        self._traces = traces
        self._memory = memory
        self._clock = clock

    def announce_pipeline(self, family: Family) -> None:
        """Add the jobs of a newly stored pipeline to the dispatch memory, so that runners can get the pending ones."""
        self._memory.count_ends(None, Applied(jobs=family.jobs, pipeline=family.pipeline))
        self._memory.announce(family.jobs)

    async def change(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Store what `decide`, perhaps called more than once, makes of the pipeline and its jobs; then queue pending
        jobs, seal logs of ended ones, and change dependent pipelines. Raises NotFoundError if there is no pipeline."""
        before: Family | None = None

        def decide_and_remember(family: Family) -> Changes:
            nonlocal before
            before = family
            return decide(family)

        applied = await self._pipelines.change_family(pipeline_id, decide_and_remember)
        self._memory.count_ends(before, applied)
        self._memory.announce(applied.jobs)
        for job in applied.jobs:
            is_over = job.state in FINAL and not job.is_trigger
            if is_over and job.started_at is not None and job.trace_checksum is None:
                await self._seal_trace(job)
        if applied.pipeline and applied.pipeline.upstream_job_id is not None:
            self._memory.trigger_jobs.put(applied.pipeline.upstream_job_id)
        try:
            await self._change_other_pipelines(pipeline_id, applied)
        except StoreError as error:
            _log.warning(
                "cannot give a free resource group to the next job, or cannot cancel child pipelines after a failure; "
                "the next sweep tries the group again, but child pipelines that still run must be canceled by hand",
                pipeline=pipeline_id,
                error=str(error),
            )
        return applied

    async def _seal_trace(self, job: Job) -> None:
        """Make the log of a job final that ended without its runner. If that fails, `operations.upkeep` tries again."""
        try:
            size, checksum = await self._traces.seal(job.id)
            await self._jobs.change_job(job.id, lambda row: replace(row, trace_bytes=size, trace_checksum=checksum))
        except StoreError as error:
            _log.warning(
                "cannot make the log of an ended job durable; it stays readable, and periodic maintenance tries again",
                job=job.id,
                error=str(error),
            )

    async def _change_other_pipelines(self, pipeline_id: PipelineId, applied: Applied) -> None:
        """Give freed resource groups to waiting jobs; cancel child pipelines (`auto_cancel:on_job_failure: all`)."""
        ended = [job for job in applied.jobs if job.state in FINAL]
        # Also by jobs that never had the group: others may have waited for their turn.
        released = {(job.project_id, job.resource_group) for job in ended}
        occupied = {(job.project_id, job.resource_group) for job in applied.jobs if job.state in OCCUPYING}
        for project_id, group in released - occupied:
            if group:
                await self.hand_on_resource_group(project_id, group)
        if any(job.state is JobState.FAILED and not (job.allow_failure or job.retried) for job in ended):
            pipeline = applied.pipeline or await self._pipelines.load_pipeline(pipeline_id)
            if pipeline is not None and pipeline.cancel_on_job_failure == "all":
                await self.cancel_children(pipeline_id)

    async def hand_on_resource_group(self, project_id: ProjectId, group: str) -> None:
        """Give a resource group that is possibly free to the job that has waited longest for it or, if the process mode
        of the group does not allow that, to one of the oldest or newest pipeline. If none of them gets it, this is
        tried again when the next job with the group ends, and by the periodic check of `timeouts`."""
        oldest = await self._jobs.find_first_of_group(project_id, group, [JobState.WAITING_FOR_RESOURCE])
        if oldest is None or await self._resume_group(oldest.pipeline_id, group):
            return
        waiting = await self._jobs.list_jobs_of_group(project_id, group, [JobState.WAITING_FOR_RESOURCE])
        ids = [job.pipeline_id for job in waiting if job.pipeline_id != oldest.pipeline_id]
        for pipeline_id in sorted({min(ids), max(ids)}) if ids else ():
            if await self._resume_group(pipeline_id, group):
                return

    async def _resume_group(self, pipeline_id: PipelineId, group: str) -> bool:
        """Resume a pipeline. Returns whether one of its jobs got the resource group."""
        applied = await self.resume(pipeline_id)
        return any(job.resource_group == group and job.state in OCCUPYING for job in applied.jobs)

    async def resume(self, pipeline_id: PipelineId) -> Applied:
        """Put those jobs of a pipeline into the queue that have waited for a resource group which is free now."""
        return await self.change(pipeline_id, lambda family: lifecycle.resume(family, self._clock.now()))

    async def finish(self, job: Job, outcome: Outcome, *, unless_changed: bool = False) -> Job | None:
        """End a job and return it as stored. Returns None if nothing was stored: the job had ended, was handed out
        again since it was read or, with `unless_changed`, the stored job differs from `job`."""
        now = self._clock.now()
        alone = lifecycle.finish_alone(job, job.epoch, outcome, now)
        if alone is not None and await self._jobs.end_beside(job, alone):
            self._memory.ended_jobs[alone.state.value] += 1
            self._memory.announce([alone])
            return alone

        variables = await self._load_url_variables(job) if outcome.succeeded else {}

        def decide(family: Family) -> Changes:
            if unless_changed and job not in family.jobs:
                return Changes()
            changes = lifecycle.finish(family, job.id, job.epoch, outcome, now)
            return replace(changes, url_variables=variables) if variables else changes

        applied = await self.change(job.pipeline_id, decide)
        return next((changed for changed in applied.jobs if changed.id == job.id), None)

    async def _load_url_variables(self, job: Job) -> dict[str, str]:
        """Return variables of dotenv reports, of the job itself and of those whose artifacts it gets, if the URL of its
        environment needs variables that were unknown at its creation. Otherwise nothing is read."""
        if job.environment_plan is None or "$" not in job.environment_plan.url:
            return {}
        family = await self._pipelines.load_family(job.pipeline_id)
        names = frozenset(job.artifacts_from)
        sources = [source.id for source in family.jobs if source.name in names] if family else []
        artifacts = [artifact for number in (*sources, job.id) for artifact in await self._jobs.list_artifacts(number)]
        return {name: value for artifact in artifacts for name, value in artifact.variables.items()}

    async def fail(self, job: Job, reason: FailureReason, message: str, *, before_script: bool = False) -> None:
        """Fail a job, unless the stored job differs from `job`. `before_script`: its script has certainly not begun, so
        the job may be retried without using up one of the retries that its `retry` keyword allows."""
        _log.warning("failing a job by decision of the cell", job=job.id, reason=reason.value, cause=message)
        outcome = Outcome(succeeded=False, reason=reason, message=message, before_script=before_script)
        await self.finish(job, outcome, unless_changed=True)

    async def release(self, job: Job) -> None:
        """Put a job whose runner has not confirmed the start back into the queue, or end it if it is being canceled.
        The runner's token becomes invalid. No effect if the job has started or was handed out again."""
        now = self._clock.now()
        await self.change(job.pipeline_id, lambda family: lifecycle.release(family, job.id, job.epoch, now))

    async def cancel_pipeline(self, pipeline_id: int) -> Pipeline:
        number = PipelineId(pipeline_id)
        await self.change(number, lambda family: lifecycle.cancel_all(family, self._clock.now()))
        await self.cancel_children(number)
        return await load_pipeline(self._pipelines, number)

    async def cancel_children(self, pipeline_id: PipelineId) -> None:
        """Cancel the child pipelines of all trigger jobs of a pipeline, including trigger jobs that were retried."""
        selection = JobFilter(pipeline_id=pipeline_id, with_retried=True, is_trigger=True)
        page = 1
        while True:
            jobs, total = await self._jobs.list_jobs(Page(number=page, size=100), selection)
            for job in jobs:
                child = await self._pipelines.find_downstream(job.id)
                if child is not None and child.is_child and child.status not in OVER:
                    await self.cancel_pipeline(child.id)
            if page * 100 >= total:
                return
            page += 1


async def load_job(jobs: JobStore, job_id: int) -> Job:
    """Return the job with this id. Raises NotFoundError if it does not exist."""
    job = await jobs.load_job(JobId(job_id))
    if job is None:
        raise NotFoundError(f"there is no job {job_id}")
    return job


async def load_pipeline(pipelines: PipelineStore, pipeline_id: PipelineId) -> Pipeline:
    """Return the pipeline with this id. Raises NotFoundError if it does not exist."""
    pipeline = await pipelines.load_pipeline(pipeline_id)
    if pipeline is None:
        raise NotFoundError(f"there is no pipeline {pipeline_id}")
    return pipeline
