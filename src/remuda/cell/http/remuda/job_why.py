"""Remuda's own calls about a job: why it waits or failed, its payload, its priority.

Only administrators may give a job a higher priority than its project has. `remuda.cell.dispatch.explanations` has the
reasons.
"""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.dispatch.payload_view import build_payload_view
from remuda.cell.http.edge.access import ADMINISTRATOR, of_job
from remuda.cell.http.edge.admission import caller_of
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import forbidden, json_answer
from remuda.cell.http.edge.lookup import any_job_in_path
from remuda.cell.http.gitlab.jobs import TimedJobShape, with_times
from remuda.cell.values.people import Level
from remuda.wire.explanations import JobWhy


class JobChange(msgspec.Struct, kw_only=True):
    priority: int


async def why(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/jobs/:job_id/why: explain why a job is in its state."""
    job, caller = await any_job_in_path(edge, request), caller_of(request)
    reasons = await edge.dispatch.explanations.explain_job(
        job.id, sees=lambda project: (caller.level_in(project) or 0) >= Level.REPORTER
    )
    return json_answer(reasons)


async def payload(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/jobs/:job_id/payload: the payload that a runner gets, without secrets."""
    job = await any_job_in_path(edge, request)
    shown = await build_payload_view(edge.store, job, public_url=edge.settings.url, now=edge.clock.wall())
    named = {"Content-Disposition": f'attachment; filename="job-{job.id}-payload.json"'}
    return json_answer(shown, headers=named)


async def change(edge: Edge, request: Request) -> Response:
    """PUT /api/remuda/v1/jobs/:job_id: change the priority of a waiting job."""
    job, caller = await any_job_in_path(edge, request), caller_of(request)
    params = await parameters(request, JobChange, limit_bytes=edge.settings.body_limit_bytes)
    project = await edge.store.projects.load_project(job.project_id)
    if params.priority > (project.priority if project else 0) and not caller.user.is_admin:
        raise forbidden("only administrators may give a job a higher priority than its project has")
    return json_answer(
        await with_times(edge, await edge.dispatch.user_commands.prioritize_job(job.id, params.priority), caller)
    )


ENDPOINTS = (
    Endpoint("GET", "/api/remuda/v1/jobs/{job_id}/why", why, of_job(Level.REPORTER), gives=JobWhy),
    Endpoint("GET", "/api/remuda/v1/jobs/{job_id}/payload", payload, ADMINISTRATOR, gives=dict[str, Any]),
    Endpoint(
        "PUT", "/api/remuda/v1/jobs/{job_id}", change, of_job(Level.MAINTAINER), takes=JobChange, gives=TimedJobShape
    ),
)
