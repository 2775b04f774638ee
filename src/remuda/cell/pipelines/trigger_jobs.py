"""Runs trigger jobs: each starts a downstream pipeline (a child, or one of another project) and, with a `strategy`,
takes over its status.

Dispatch puts a trigger job into the queue whenever the job or its downstream pipeline changes, and the periodic check
in `timeouts` adds all trigger jobs that have not ended. So what a crash has interrupted is done again: a trigger job is
stored as running before its pipeline is stored, and no two pipelines are stored for one trigger job."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from remuda.cell.blobs.archives import read_small_entry
from remuda.cell.blobs.port import Blobs
from remuda.cell.core.pipelines import downstream, trigger_jobs
from remuda.cell.core.pipelines.downstream import TriggerContext
from remuda.cell.dispatch.artifact_dependencies import dotenv_variables
from remuda.cell.dispatch.job_changes import JobChanges
from remuda.cell.dispatch.payload_inputs import load_variables
from remuda.cell.errors import CellError, InvalidError, NotFoundError, StoreError, TooDeepError
from remuda.cell.pipelines.creation import Starter
from remuda.cell.pipelines.cross_project_access import find_reachable_project
from remuda.cell.pipelines.trigger_queue import TriggerQueue
from remuda.cell.store.ports import Store
from remuda.cell.values import Family, Job, Pipeline, Project
from remuda.cell.values.changes import Changes
from remuda.cell.values.people import Level
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import Clock
from remuda.model.job import FailureReason, JobId, JobState
from remuda.model.progress import OVER
from remuda.pipeline import Trigger
from remuda.telemetry.logs import logger

FILE_LIMIT_BYTES = 1024 * 1024
WORKERS = 32
"""How many trigger jobs are advanced at the same time: one that waits for a remote file delays no other."""
MAX_MESSAGE = 20_000

FindRef = Callable[[Project, str], Awaitable[tuple[str, str] | None]]
"""Returns the full name and the commit of a branch or tag, of the default branch for an empty name; None if missing."""

_log = logger("cell")


class _RefusedError(Exception):
    """The downstream pipeline can never be started; `reason` is the failure reason of the trigger job."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TriggerJobs:
    def __init__(
        self,
        *,
        store: Store,
        blobs: Blobs,
        changes: JobChanges,
        queue: TriggerQueue,
        starter: Starter,
        find_ref: FindRef,
        clock: Clock,
        public_url: str,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._changes = changes
        self._queue = queue
        self._starter = starter
        self._find_ref = find_ref
        self._clock = clock
        self._public_url = public_url

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, let several workers take trigger jobs from the queue and process them."""
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work(), name=f"cell trigger jobs {n}") for n in range(WORKERS)]
            await stop.wait()
            for worker in workers:
                worker.cancel()

    async def _work(self) -> None:
        while True:
            job_id = await self._queue.take()
            try:
                await self.advance(job_id)
            except StoreError as error:
                _log.warning(
                    "cannot process a trigger job; trying again with the next sweep", job=job_id, error=str(error)
                )
            except Exception as error:  # noqa: BLE001 - one trigger job must not stop the others
                _log.error(
                    "unexpected error while processing a trigger job; trying again with the next sweep",
                    job=job_id,
                    exc_info=error,
                )
            finally:
                self._queue.finish(job_id)

    async def advance(self, job_id: JobId) -> None:
        """Do what the trigger job needs next: start its downstream pipeline, take over its status or, if the job is
        being canceled, cancel it (only a child pipeline). Safe to call again after an interruption."""
        job, spec = await self._store.jobs.load_job(job_id), await self._store.jobs.load_spec(job_id)
        if job is None or spec is None or spec.trigger is None:
            return
        if job.state is JobState.PENDING:
            job = await self._change(job, lambda family, now: trigger_jobs.start(family, job_id, now))
        started = await self._store.pipelines.find_downstream(job_id)
        if started is None and job.state is JobState.RUNNING:
            started = await self._start(job, spec.trigger)
        if started is None:
            await self._change(job, lambda family, now: trigger_jobs.stop(family, job_id, now))
            return
        if job.state is JobState.CANCELING and started.is_child and started.status not in OVER:
            await self._changes.cancel_pipeline(started.id)
        latest = await self._store.pipelines.load_pipeline(started.id) or started
        strategy = spec.trigger.strategy
        await self._change(job, lambda family, now: trigger_jobs.follow(family, job_id, latest, strategy, now))

    async def _change(self, job: Job, decide: Callable[[Family, float], Changes]) -> Job:
        await self._changes.change(job.pipeline_id, lambda family: decide(family, self._clock.now()))
        return await self._store.jobs.load_job(job.id) or job

    async def _start(self, job: Job, trigger: Trigger) -> Pipeline | None:
        """Start the downstream pipeline; if that is impossible, mark the trigger job as failed and return None."""
        try:
            request = await self._request(job, trigger)
            started = await self._starter.start(request)
        except _RefusedError as refusal:
            reason, message = refusal.reason, str(refusal)
        except TooDeepError as error:
            reason, message = FailureReason.DOWNSTREAM_TOO_DEEP, str(error)
        except StoreError:
            raise
        except CellError as error:
            reason, message = FailureReason.DOWNSTREAM_CREATION_FAILED, str(error)
        except Exception as error:  # noqa: BLE001 - a job that can never start its pipeline must not try for ever
            _log.error(
                "unexpected error in the start of a downstream pipeline; the trigger job fails",
                job=job.id,
                exc_info=error,
            )
            reason = FailureReason.DATA_INTEGRITY_FAILURE
            message = "the cell failed to start the pipeline; the log of the cell has the error"
        else:
            _log.info(
                "trigger job started a downstream pipeline",
                job=job.id,
                pipeline=started.id,
                project=request.project.path,
            )
            return started
        _log.info("cannot start a downstream pipeline; the trigger job fails", job=job.id, reason=reason.value)
        await self._change(
            job, lambda family, now: trigger_jobs.fail(family, job.id, reason, message[:MAX_MESSAGE], now)
        )
        return None

    async def _request(self, job: Job, trigger: Trigger) -> PipelineRequest:
        spec, family = (
            await self._store.jobs.load_spec(job.id),
            await self._store.pipelines.load_family(job.pipeline_id),
        )
        project = await self._store.projects.load_project(job.project_id)
        if spec is None or family is None or project is None:
            raise NotFoundError(f"job {job.id} lacks its spec, pipeline or project in the store")
        if project.archived:
            raise _RefusedError(FailureReason.ARCHIVED_FAILURE, "the project is archived, so no job starts in it")
        context = TriggerContext(
            job=job,
            spec=spec,
            trigger=trigger,
            pipeline=family.pipeline,
            project=project,
            variables=await load_variables(self._store, project, job.environment),
            inherited=await dotenv_variables(self._store, job, family),
            public_url=self._public_url,
        )
        if trigger.include:
            files = downstream.includes(context)
            return downstream.for_child(context, files, await self._texts(family, files))
        return await self._request_for_project(context)

    async def _request_for_project(self, context: TriggerContext) -> PipelineRequest:
        expand = context.expander()
        path = expand(context.trigger.project)
        user_id = context.pipeline.user_id
        project = await find_reachable_project(
            self._store, user_id, context.project, path, Level.DEVELOPER, self._clock.wall()
        )
        if project is None:
            raise _RefusedError(
                FailureReason.DOWNSTREAM_PROJECT_NOT_FOUND,
                f'there is no project "{path}", or the user of this pipeline may not start pipelines there; check the '
                "path and the user's role in that project",
            )
        if project.id == context.project.id:
            raise _RefusedError(
                FailureReason.INVALID_TRIGGER,
                f'"{path}" is the project of this job itself; start a child pipeline with "include" instead',
            )
        branch = expand(context.trigger.branch)
        ref = await self._find_ref(project, branch)
        if ref is None:
            missing = f'branch or tag "{branch}"' if branch else "default branch yet"
            raise InvalidError(f'the project "{path}" has no {missing}')
        return downstream.for_project(context, project, *ref)

    async def _texts(self, family: Family, files: Sequence[dict[str, Any]]) -> Mapping[str, str]:
        """`files` are the entries of `trigger:include`. Return the content of each entry that is an artifact of a job,
        by its path. Raises InvalidError if a job, its artifacts or the file in them does not exist."""
        return {
            file["artifact"]: await self._text(family, file["artifact"], file["job"])
            for file in files
            if "artifact" in file
        }

    async def _text(self, family: Family, path: str, name: str) -> str:
        producer = next((job for job in family.jobs if job.name == name), None)
        if producer is None:
            raise InvalidError(f'there is no job "{name}" in this pipeline that could have made {path}')
        artifacts = await self._store.jobs.list_artifacts(producer.id)
        archive = next(
            (artifact for artifact in artifacts if artifact.type == "archive" and artifact.format == "zip"), None
        )
        if archive is None or producer.erased:
            raise InvalidError(f'job "{name}" left no artifacts; {path} must be among them')
        try:
            content = await read_small_entry(self._blobs, archive.blob, path, limit_bytes=FILE_LIMIT_BYTES)
            return content.decode()
        except NotFoundError:
            raise InvalidError(f'{path} is not among the artifacts of job "{name}"') from None
        except UnicodeDecodeError as error:
            raise InvalidError(f'{path} of job "{name}" is not UTF-8 (byte {error.start})') from None
