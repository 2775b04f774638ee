"""A pipeline on its way, in one answer: its jobs, why those wait that wait, and the pipelines that they started.

Decided here: in which words a wait is told, and how much is told. Steps and files are looked up only where they are
asked for, because whoever follows a pipeline asks often. `remuda run` does.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.blame import is_waited_for
from remuda.cell.http.access import of_pipeline
from remuda.cell.http.admission import Caller, caller_of
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import bad_parameter, json_answer, not_found
from remuda.cell.http.lookup import number_in_path
from remuda.cell.http.views import waiting_seconds
from remuda.cell.people import Level
from remuda.cell.values import Family, Job
from remuda.model.job import JobState, PipelineId
from remuda.wire.user_api import FileInfo, JobProgress, PipelineProgress

DETAILS = ("none", "running", "all")
NAMED_WAITS = 10
"""A job may wait for thousands; so many are named."""
_RUNNING = frozenset({JobState.LEASED, JobState.RUNNING, JobState.CANCELING})


async def show(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/pipelines/:pipeline_id/progress."""
    details = request.query_params.get("details", "none")
    if details not in DETAILS:
        raise bad_parameter(f"details does not have a valid value; one of {', '.join(DETAILS)}")
    found = await _pipeline(edge, caller_of(request), PipelineId(number_in_path(request, "pipeline_id")), details)
    if found is None:
        raise not_found("Pipeline")
    return json_answer(found)


async def _pipeline(edge: Edge, caller: Caller, pipeline_id: PipelineId, details: str) -> PipelineProgress | None:
    """None when there is none, or none that the caller may read."""
    family = await edge.store.family(pipeline_id)
    project = await edge.store.project(family.pipeline.project_id) if family else None
    if family is None or project is None or (caller.level_in(project) or 0) < Level.REPORTER:
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
        jobs=tuple([await _job(edge, caller, job, family, details) for job in family.jobs]),
    )


async def _job(edge: Edge, caller: Caller, job: Job, family: Family, details: str) -> JobProgress:
    shown = job_progress(job, family.jobs, edge.clock.now())
    if job.downstream_id is not None:
        shown = msgspec.structs.replace(shown, downstream=await _pipeline(edge, caller, job.downstream_id, details))
    if details == "all" and job.started_at is not None:
        left = await edge.store.artifacts(job.id)
        files = tuple(FileInfo(type=file.type, filename=file.filename, format=file.format) for file in left)
        shown = msgspec.structs.replace(shown, files=files)
    if job.started_at is not None and (details == "all" or (details == "running" and job.state in _RUNNING)):
        results = await edge.store.results(job.id)
        shown = msgspec.structs.replace(shown, steps=tuple(msgspec.json.decode(result.body) for result in results))
    return shown


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
        started_at=job.started_at,
        finished_at=job.finished_at,
        waiting_seconds=waiting_seconds(job, now),
        failure_reason=job.failure_reason,
        failure_message=job.failure_message,
        exit_code=job.exit_code,
        waits_for=waited_for(job, family) if job.state is JobState.CREATED else (),
        starts_at=job.scheduled_at if job.state is JobState.SCHEDULED else None,
        resource_group=job.resource_group,
    )


def waited_for(job: Job, family: Sequence[Job]) -> tuple[str, ...]:
    """The jobs that must be over before this one gets its turn, the first few of them."""
    names = frozenset(job.waits_for)
    ahead = (
        other.name
        for other in family
        if is_waited_for(other) and (other.stage_index < job.stage_index if job.by_stage else other.name in names)
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
