"""A pipeline on its way, in one answer: its jobs, why those wait that wait, and the pipelines that they started.

Decided here: in which words a wait is told, and how much is told. Steps and files are looked up only where they are
asked for, because whoever follows a pipeline asks often. `remuda run` does. Of steps an answer has only so much, and
says of which jobs it has not all.
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Literal, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.waiting.blocking_jobs import is_blocking
from remuda.cell.dispatch.step_results import read_results
from remuda.cell.http.edge.access import of_pipeline
from remuda.cell.http.edge.admission import Caller, caller_of
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import bad_parameter, json_answer, not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.gitlab.views import seconds_waiting
from remuda.cell.values import Family, Job
from remuda.cell.values.people import Level
from remuda.model.job import JobState, PipelineId
from remuda.wire.user_api import FileInfo, JobProgress, PipelineProgress

DETAILS = ("none", "running", "all")
NAMED_WAITS = 10
"""A job may wait for thousands; so many are named."""
STEPS_BYTES = 8 * 1024 * 1024
"""So much of step results is in one answer, whichever jobs they are of."""
_RUNNING = frozenset({JobState.LEASED, JobState.RUNNING, JobState.CANCELING})


class StepStanding(TypedDict, total=False):
    """Of a step's result what tells how the step stands; what it took and gave may be long, and this is asked often."""

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


class _Asked:
    """What an answer is to tell, and how much of steps it has room for."""

    def __init__(self, caller: Caller, details: str) -> None:
        self.caller = caller
        self.details = details
        self.room = STEPS_BYTES


async def show(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/pipelines/:pipeline_id/progress."""
    details = request.query_params.get("details", "none")
    if details not in DETAILS:
        raise bad_parameter(f"details does not have a valid value; one of {', '.join(DETAILS)}")
    asked = _Asked(caller_of(request), details)
    found = await _pipeline(edge, asked, PipelineId(number_in_path(request, "pipeline_id")))
    if found is None:
        raise not_found("Pipeline")
    return json_answer(found)


async def _pipeline(edge: Edge, asked: _Asked, pipeline_id: PipelineId) -> PipelineProgress | None:
    """None when there is none, or none that the caller may read."""
    family = await edge.store.pipelines.load_family(pipeline_id)
    project = await edge.store.projects.load_project(family.pipeline.project_id) if family else None
    if family is None or project is None or (asked.caller.level_in(project) or 0) < Level.REPORTER:
        return None
    pipeline = family.pipeline
    return PipelineProgress(
        id=pipeline.id,
        project_id=project.id,
        project=project.path,
        status=pipeline.status,
        ref=pipeline.ref,
        source=pipeline.source,
        name=pipeline.name,
        jobs=tuple([await _job(edge, asked, job, family) for job in family.jobs]),
    )


async def _job(edge: Edge, asked: _Asked, job: Job, family: Family) -> JobProgress:
    shown, details = job_progress(job, family.jobs, edge.clock.now()), asked.details
    if job.downstream_id is not None:
        shown = msgspec.structs.replace(shown, downstream=await _pipeline(edge, asked, job.downstream_id))
    if details == "all" and job.started_at is not None:
        left = await edge.store.jobs.list_artifacts(job.id)
        files = tuple(FileInfo(type=file.type, filename=file.filename, format=file.format) for file in left)
        shown = msgspec.structs.replace(shown, files=files)
    if job.started_at is not None and (details == "all" or (details == "running" and job.state in _RUNNING)):
        steps, note = await _steps(edge, asked, job)
        shown = msgspec.structs.replace(shown, steps=steps, steps_note=note)
    return shown


async def _steps(edge: Edge, asked: _Asked, job: Job) -> tuple[tuple[StepStanding, ...], str]:
    """How the steps stand, as far as there is room, and a note if there is not."""
    told: list[StepStanding] = []
    async with aclosing(read_results(edge.store, job.id)) as results:
        async for result in results:
            event = msgspec.json.decode(result.body, type=StepStanding)
            asked.room -= len(msgspec.json.encode(event))
            if asked.room < 0:
                return tuple(told), f"there are more: GET /api/remuda/v1/jobs/{job.id}/steps tells all"
            told.append(event)
    return tuple(told), ""


def job_progress(job: Job, family: Sequence[Job], now: float) -> JobProgress:
    """A job by itself; `family` are all jobs of its pipeline."""
    return JobProgress(
        id=job.id,
        name=job.name,
        stage=job.stage,
        stage_index=job.stage_index,
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
        waits_for=jobs_ahead(job, family) if job.state is JobState.CREATED else (),
        starts_at=job.scheduled_at if job.state is JobState.SCHEDULED else None,
        resource_group=job.resource_group,
    )


def jobs_ahead(job: Job, family: Sequence[Job]) -> tuple[str, ...]:
    """The jobs that must be over before this one gets its turn, the first few of them."""
    names = frozenset(job.waits_for)
    ahead = (
        other.name
        for other in family
        if is_blocking(other) and (other.stage_index < job.stage_index if job.by_stage else other.name in names)
    )
    return tuple(name for name, _ in zip(ahead, range(NAMED_WAITS), strict=False))


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/remuda/v1/pipelines/{pipeline_id}/progress",
        show,
        of_pipeline(Level.REPORTER),
        query={"details": Literal["none", "running", "all"]},
        gives=PipelineProgress,
    ),
)
