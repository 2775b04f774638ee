"""A cell in memory, without a network and in virtual time, for tests that read like a sequence of calls."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remuda.cell.blobs.memory import MemoryBlobs
from remuda.cell.core.pipelines.creation import new_jobs as compiled_jobs
from remuda.cell.core.pipelines.creation import new_pipeline, with_outcome
from remuda.cell.dispatch.dispatcher import Dispatch
from remuda.cell.dispatch.handout import Assignment, NoJob
from remuda.cell.errors import ForbiddenError, InvalidError
from remuda.cell.pipelines.trigger_jobs import TriggerJobs
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.settings import CellSettings
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.traces.memory import MemoryTraces
from remuda.cell.values import USER_ID, Family, Job, Pipeline, Project, Runner
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import VirtualClock, settle
from remuda.model.job import JobId
from remuda.pipeline import Facts, JobSpec, MemorySources, PipelineError, compile_pipeline
from remuda.testing.builders import SHA, a_pipeline, a_project, a_runner, new_jobs
from remuda.wire.runner_api import RequestJob, RunnerInfo, TraceOutput, UpdateJob

FEATURES = {
    "artifacts_exclude": True,
    "fallback_cache_keys": True,
    "refspecs": True,
    "return_exit_code": True,
    "upload_multiple_artifacts": True,
    "vault_secrets": True,
}
"""Features that a runner reports to the cell by default."""

_SETTINGS = CellSettings(data=Path("unused"), public_url="https://ci.example:8443/root", trace_limit_bytes=1000)


@dataclass
class MemoryStarter:
    """Creates pipelines like a cell, but from `files` (by project path, then name), not git. Only branch: `main`."""

    store: MemoryStore
    dispatch: Dispatch
    clock: VirtualClock
    files: dict[str, dict[str, str]]

    async def start(self, request: PipelineRequest) -> Pipeline:
        existing = await self.store.pipelines.find_downstream(request.upstream.job.id) if request.upstream else None
        if existing is not None:
            return existing
        files = self.files.get(request.project.path, {})
        text = files.get(request.file) if request.text is None else request.text
        if text is None:
            raise InvalidError("Missing CI config file")
        new = new_pipeline(request, default_branch="main", predefined={}, now=self.clock.now())
        facts = Facts(ref=new.ref, source=new.source, sha=new.sha, variables=new.variables)
        try:
            compiled = compile_pipeline(
                text,
                file=request.file,
                facts=facts,
                sources=MemorySources(files, projects=self.files),
                inputs=request.inputs,
            )
        except PipelineError as error:
            raise InvalidError(str(error)) from None
        if compiled.skipped is not None:
            raise InvalidError(compiled.skipped)
        pipeline = with_outcome(new, compiled)
        jobs = compiled_jobs(compiled.jobs, pipeline, request.project, (), _SETTINGS.url)
        family = await self.store.pipelines.add_pipeline(pipeline, jobs, now=self.clock.now())
        self.dispatch.memory.announce(family.jobs)
        return family.pipeline

    async def find_ref(self, project: Project, name: str) -> tuple[str, str] | None:
        return ("refs/heads/main", SHA) if name in ("", "main") else None


@dataclass
class MemoryCell:
    """An in-memory cell with one project and one runner."""

    store: MemoryStore
    traces: MemoryTraces
    clock: VirtualClock
    dispatch: Dispatch
    project: Project
    runner: Runner
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    """Files of the repositories, by the path of the project."""
    _requests: int = field(default=0)

    @classmethod
    async def open(cls) -> "MemoryCell":
        clock, store = VirtualClock(), MemoryStore()
        project = await store.projects.add_project(a_project())
        runner = await store.runners.add_runner(a_runner(tags=("linux",)))
        traces = MemoryTraces()
        return cls(store, traces, clock, await _dispatch(store, traces, clock), project, runner)

    async def reopen(self) -> "MemoryCell":
        """Return a new cell with the same store, as after a restart of the cell's process."""
        return replace(self, dispatch=await _dispatch(self.store, self.traces, self.clock))

    async def push(self, *specs: JobSpec) -> Family:
        pipeline = a_pipeline(project_id=self.project.id)
        family = await self.store.pipelines.add_pipeline(pipeline, new_jobs(*specs), now=self.clock.now())
        self.dispatch.memory.announce(family.jobs)
        return family

    @property
    def starter(self) -> MemoryStarter:
        return MemoryStarter(self.store, self.dispatch, self.clock, self.files)

    @property
    def trigger_jobs(self) -> TriggerJobs:
        return TriggerJobs(
            store=self.store,
            blobs=self.blobs,
            changes=self.dispatch.changes,
            queue=self.dispatch.memory.trigger_jobs,
            starter=self.starter,
            find_ref=self.starter.find_ref,
            clock=self.clock,
            public_url=_SETTINGS.url,
        )

    async def push_file(
        self, text: str, variables: Mapping[str, str] | None = None, *, ref: str = "refs/heads/main"
    ) -> Family:
        """Compile the text of a pipeline file, store the pipeline, and return it with its jobs."""
        request = PipelineRequest(
            project=self.project, source="push", ref=ref, sha=SHA, text=text, variables=variables or {}, user_id=USER_ID
        )
        family = await self.store.pipelines.load_family((await self.starter.start(request)).id)
        assert family is not None
        return family

    async def poll(
        self,
        *,
        runner: Runner | None = None,
        hold: bool = False,
        hold_seconds: float | None = 240,
        request_id: str | None = None,
        graceful: bool = False,
        gone: asyncio.Event | None = None,
        features: Mapping[str, bool] | None = None,
        two_phase: bool = True,
    ) -> Assignment | NoJob:
        """Request a job as with POST /jobs/request. `hold`: wait up to `hold_seconds` for a job. `request_id`: the same
        id gets the same job again. `graceful`: the runner runs after_script at a cancel. `two_phase`: it acknowledges
        jobs before running them. `features`: others of the runner. `gone`: set to simulate a disconnect."""
        self._requests += 1
        return await self.dispatch.handout.request_job(
            runner or self.runner,
            RequestJob(
                system_id="s_abcdefabcdef",
                last_update="c1-x-0" if hold else None,
                hold_seconds=hold_seconds if hold else None,
                info=RunnerInfo(
                    features={
                        "cancel_gracefully": graceful,
                        "two_phase_job_commit": two_phase,
                        **(FEATURES if features is None else features),
                    }
                ),
            ),
            request_id=request_id or f"request-{self._requests}",
            ip="192.0.2.1",
            gone=gone or asyncio.Event(),
        )

    async def take(
        self,
        *,
        graceful: bool = False,
        request_id: str | None = None,
        runner: Runner | None = None,
        two_phase: bool = True,
    ) -> tuple[Job, str]:
        """Request a job as a runner does, and assert that the cell returns one. Returns the job and its token."""
        handout = await self.poll(graceful=graceful, request_id=request_id, runner=runner, two_phase=two_phase)
        assert isinstance(handout, Assignment)
        return handout.job, handout.payload.token

    async def start(self, *, graceful: bool = False) -> tuple[Job, str]:
        """Request a job and acknowledge it, so that it runs. Returns the job and its token."""
        job, token = await self.take(graceful=graceful)
        return await self.dispatch.runner_calls.touch(job), token

    async def put(
        self,
        token: str,
        state: str,
        *,
        reason: str | None = None,
        bytesize: int | None = None,
        exit_code: int | None = None,
        manager: str = "gitlab-runner",
        may_have_begun: bool = False,
        **more: Any,
    ) -> tuple[int, str]:
        """Report a job's state as with PUT /jobs/:id. `reason`: of the failure. `bytesize`: of the log. `manager`: who
        reports. `may_have_begun`: the machine was lost, the script may have run. `more`: further fields of the
        message. Returns status and Job-Status."""
        job = await self.dispatch.runner_calls.authenticate(token, ended=True)
        output = TraceOutput(bytesize=bytesize) if bytesize is not None else None
        update = UpdateJob(
            state=state,
            failure_reason=reason,
            output=output,
            exit_code=exit_code,
            info=RunnerInfo(name=manager),
            remuda_may_have_begun=may_have_begun,
            **more,
        )
        updated = await self.dispatch.runner_calls.update_job(job, update)
        return updated.code, updated.job.status()

    async def refusal(self, token: str) -> str | None:
        """Assert that a job token is refused, and return the Job-Status header of the refusal."""
        try:
            await self.dispatch.runner_calls.authenticate(token)
        except ForbiddenError as error:
            return error.job_status
        raise AssertionError("the token was accepted")

    async def run_next(self, state: str = "success") -> str:
        """Request the next job and end it with this state. Returns its name."""
        job, token = await self.start()
        await self.put(token, state, reason=None if state == "success" else "script_failure")
        await settle()
        return job.name

    async def newest(self, family: Family, name: str) -> Job:
        now = await self.store.pipelines.load_family(family.pipeline.id)
        assert now is not None
        return next(job for job in now.jobs if job.name == name)

    async def child(self, family: Family, name: str = "go") -> Family:
        """Load the downstream pipeline that the trigger job `name` of the pipeline `family` started, with its jobs."""
        pipeline = await self.store.pipelines.find_downstream((await self.newest(family, name)).id)
        assert pipeline is not None
        child = await self.store.pipelines.load_family(pipeline.id)
        assert child is not None
        return child

    async def job(self, job_id: int) -> Job:
        job = await self.store.jobs.load_job(JobId(job_id))
        assert job is not None
        return job

    async def status(self, job_id: int) -> str:
        """Current status of a job, in GitLab's terms."""
        return (await self.job(job_id)).status()

    async def pipeline(self, family: Family) -> Pipeline:
        pipeline = await self.store.pipelines.load_pipeline(family.pipeline.id)
        assert pipeline is not None
        return pipeline

    async def statuses(self, family: Family) -> dict[str, str]:
        """Return the latest status by job name in the pipeline `family`, and that of the pipeline as "pipeline"."""
        now = await self.store.pipelines.load_family(family.pipeline.id)
        assert now is not None
        return {job.name: job.status() for job in now.jobs} | {"pipeline": now.pipeline.status}

    @asynccontextmanager
    async def run_timeouts(self) -> AsyncIterator[None]:
        """Check job timeouts and process trigger jobs in the background until the end of the block."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.dispatch.timeouts.watch(stop), name="watch")
            group.create_task(self.trigger_jobs.watch(stop), name="trigger jobs")
            await settle()
            yield
            stop.set()


async def _dispatch(store: MemoryStore, traces: MemoryTraces, clock: VirtualClock) -> Dispatch:
    keys = KeyRing(store, clock, cell_id=1, issuer="https://ci.example")
    dispatch = Dispatch(store, traces, clock, _SETTINGS, keys)
    await dispatch.sync.load()
    return dispatch
