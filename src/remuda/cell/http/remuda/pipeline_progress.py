"""`GET /pipelines/:id/progress`: a pipeline with its jobs, what they wait for, and downstream pipelines, in one answer.

Callers that follow a pipeline, such as `remuda run`, ask often, so steps and files are loaded only on request. The size
of steps in an answer is limited; a job whose steps are not complete has a note (`steps_note`)."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any, Literal, TypedDict

import msgspec
from starlette.requests import Request

from remuda.cell.core.waiting.blocking_jobs import is_blocking
from remuda.cell.dispatch.step_results import read_results
from remuda.cell.http.edge.access import of_pipeline
from remuda.cell.http.edge.admission import ANONYMOUS, Caller
from remuda.cell.http.edge.bodies import flag_in_query
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.views import seconds_waiting
from remuda.cell.values import Family, Job
from remuda.cell.values.people import Level
from remuda.model.job import JobState, PipelineId
from remuda.wire.user_api import FileInfo, JobAttempt, JobProgress, PipelineProgress, PipelineRef

DETAILS = ("none", "running", "all")
NAMED_WAITS = 10
"""How many of the jobs that a job waits for are named; there may be thousands."""
MOST_ATTEMPTS = 2000
"""How many replaced attempts of the jobs of a pipeline are listed; a pipeline may have more."""
STEPS_BYTES = 8 * 1024 * 1024
"""Limit for the size of all step results in one answer."""
_RUNNING = frozenset({JobState.LEASED, JobState.RUNNING, JobState.CANCELING})


routes = Routes()


class StepStanding(TypedDict, total=False):
    """The fields of a step result that tell its state. Inputs and outputs, which may be long, are left out."""

    version: Any
    seq: Any
    event: Any
    path: Any
    name: Any
    reference: Any
    origin: Any
    attempt: Any
    retried: Any
    time: Any
    status: Any
    exit_code: Any
    error: Any
    fault: Any
    started_at: Any
    finished_at: Any
    note: Any


class _Query:
    """One request: its caller, the requested details, and how many bytes of step results still fit into the answer."""

    def __init__(self, caller: Caller, details: str, *, with_graph: bool) -> None:
        self.caller = caller
        self.details = details
        self.with_graph = with_graph
        self.room = STEPS_BYTES


@routes.get(
    "/api/remuda/v1/pipelines/{pipeline_id}/progress",
    of_pipeline(Level.REPORTER),
    query={"details": Literal["none", "running", "all"], "graph": bool},
)
async def show(edge: Edge, request: Request, caller: Caller) -> PipelineProgress:
    """Show a pipeline with its jobs, what they wait for, and its downstream pipelines.
    With `graph` also what each job depends on, when it became ready, why no runner could take it, and its earlier
    attempts."""
    details = request.query_params.get("details", "none")
    if details not in DETAILS:
        raise bad_parameter(f"details does not have a valid value; expected one of {', '.join(DETAILS)}")
    if caller is ANONYMOUS:
        # The steps of a job are not public (`public_reads`).
        details = "none"
    query = _Query(caller, details, with_graph=flag_in_query(request, "graph"))
    progress = await _pipeline(edge, query, PipelineId(number_in_path(request, "pipeline_id")))
    if progress is None:
        raise not_found("Pipeline")
    if query.with_graph:
        progress = msgspec.structs.replace(progress, upstream=await _find_upstream(edge, caller, progress.id))
    return progress


async def _find_upstream(edge: Edge, caller: Caller, pipeline_id: int) -> PipelineRef | None:
    """The pipeline that started this one; None if none did, or the caller may not read it."""
    pipeline = await edge.store.pipelines.load_pipeline(PipelineId(pipeline_id))
    if pipeline is None or pipeline.upstream_pipeline_id is None:
        return None
    upstream = await edge.store.pipelines.load_pipeline(pipeline.upstream_pipeline_id)
    project = await edge.store.projects.load_project(upstream.project_id) if upstream else None
    if upstream is None or project is None or (caller.level_in(project) or 0) < Level.REPORTER:
        return None
    return PipelineRef(id=upstream.id, project=project.path)


async def _pipeline(edge: Edge, query: _Query, pipeline_id: PipelineId) -> PipelineProgress | None:
    """Progress of a pipeline, its jobs and downstream pipelines; None if missing or the caller may not read it."""
    family = await edge.store.pipelines.load_family(pipeline_id)
    project = await edge.store.projects.load_project(family.pipeline.project_id) if family else None
    if family is None or project is None or (query.caller.level_in(project) or 0) < Level.REPORTER:
        return None
    pipeline = family.pipeline
    blocking = {job.name: job for job in family.jobs if is_blocking(job)}
    jobs = [await _job(edge, query, job, blocking) for job in family.jobs]
    if query.with_graph:
        jobs = await _add_graph(edge, family, jobs)
    return PipelineProgress(
        id=pipeline.id,
        project_id=project.id,
        project=project.path,
        status=pipeline.status,
        ref=pipeline.ref,
        source=pipeline.source,
        name=pipeline.name,
        created_at=pipeline.created_at if query.with_graph else None,
        finished_at=pipeline.finished_at if query.with_graph else None,
        jobs=tuple(jobs),
    )


async def _add_graph(edge: Edge, family: Family, jobs: Sequence[JobProgress]) -> list[JobProgress]:
    """Return `jobs`, those of `family` in its order, with the fields that `graph` adds."""
    reasons = await edge.dispatch.explanations.find_missing_runners(family.jobs)
    attempts: dict[str, list[JobAttempt]] = {}
    for attempt in await edge.store.jobs.list_replaced_attempts(family.pipeline.id, limit=MOST_ATTEMPTS):
        attempts.setdefault(attempt.name, []).append(_describe_attempt(attempt))
    return [
        msgspec.structs.replace(
            progress,
            by_stage=job.by_stage,
            needs=job.waits_for,
            pending_at=job.pending_at,
            no_runner_reason=reasons.get(job.id, ""),
            attempts=tuple(attempts.get(job.name, ())),
        )
        for job, progress in zip(family.jobs, jobs, strict=True)
    ]


async def _job(edge: Edge, query: _Query, job: Job, blocking: Mapping[str, Job]) -> JobProgress:
    progress, details = job_progress(job, blocking, edge.clock.now()), query.details
    if job.downstream_id is not None:
        progress = msgspec.structs.replace(progress, downstream=await _pipeline(edge, query, job.downstream_id))
    if details == "all" and job.started_at is not None:
        artifacts = await edge.store.jobs.list_artifacts(job.id)
        files = tuple(FileInfo(type=file.type, filename=file.filename, format=file.format) for file in artifacts)
        progress = msgspec.structs.replace(progress, files=files)
    if job.started_at is not None and (details == "all" or (details == "running" and job.state in _RUNNING)):
        steps, note = await _steps(edge, query, job)
        progress = msgspec.structs.replace(progress, steps=steps, steps_note=note)
    return progress


async def _steps(edge: Edge, query: _Query, job: Job) -> tuple[tuple[StepStanding, ...], str]:
    """States of a job's steps, and a note where to find the rest if not all of them fit (else empty)."""
    steps: list[StepStanding] = []
    async with aclosing(read_results(edge.store.jobs, job.id)) as results:
        async for result in results:
            event = msgspec.json.decode(result.body, type=StepStanding)
            query.room -= len(msgspec.json.encode(event))
            if query.room < 0:
                note = f"not all steps fit into this answer: GET /api/remuda/v1/jobs/{job.id}/steps has all"
                return tuple(steps), note
            steps.append(event)
    return tuple(steps), ""


def _describe_attempt(job: Job) -> JobAttempt:
    return JobAttempt(
        id=job.id,
        status=job.status(),
        created_at=job.created_at,
        started_at=job.start_time(),
        finished_at=job.finished_at,
        failure_reason=job.failure_reason,
    )


def job_progress(job: Job, blocking: Mapping[str, Job], now: float) -> JobProgress:
    """Progress of a job without its steps. `blocking`: the jobs of its pipeline for which later jobs wait, by name."""
    return JobProgress(
        id=job.id,
        name=job.name,
        stage=job.stage,
        stage_index=job.stage_index,
        is_trigger=job.is_trigger,
        status=job.status(),
        allow_failure=job.allow_failure,
        tags=job.tags,
        created_at=job.created_at,
        started_at=job.start_time(),
        finished_at=job.finished_at,
        waiting_seconds=seconds_waiting(job, now),
        failure_reason=job.failure_reason,
        failure_message=job.failure_message,
        exit_code=job.exit_code,
        warnings=job.warnings,
        coverage=job.coverage,
        waits_for=jobs_ahead(job, blocking) if job.state is JobState.CREATED else (),
        starts_at=job.scheduled_at if job.state is JobState.SCHEDULED else None,
        resource_group=job.resource_group,
    )


def jobs_ahead(job: Job, blocking: Mapping[str, Job]) -> tuple[str, ...]:
    """Names of the first few of the jobs `blocking` that must end before `job` can start."""
    if job.by_stage:
        ahead = (other.name for other in blocking.values() if other.stage_index < job.stage_index)
    else:
        ahead = (name for name in job.waits_for if name in blocking)
    return tuple(islice(ahead, NAMED_WAITS))
