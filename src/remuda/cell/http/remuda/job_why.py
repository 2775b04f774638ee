"""Remuda's own calls about a job: why it waits or failed (`remuda.cell.dispatch.explanations`), the payload that its
runner gets, its priority. Only administrators may give a job a higher priority than its project has."""

from typing import Any

import msgspec
from starlette.responses import Response

from remuda.cell.dispatch.payload_view import build_payload_view
from remuda.cell.http.edge.access import ADMINISTRATOR, of_job
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import forbidden, json_answer
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.jobs import TimedJobShape, with_times
from remuda.cell.values import Job
from remuda.cell.values.people import Level
from remuda.wire.explanations import JobWhy

routes = Routes()


class JobChange(msgspec.Struct, kw_only=True):
    priority: int


@routes.get("/api/remuda/v1/jobs/{job_id}/why", of_job(Level.REPORTER))
async def why(edge: Edge, job: Job, caller: Caller) -> JobWhy:
    """Explain why a job waits, failed, or is in another state."""
    return await edge.dispatch.explanations.explain_job(
        job.id, sees=lambda project: (caller.level_in(project) or 0) >= Level.REPORTER
    )


@routes.get("/api/remuda/v1/jobs/{job_id}/payload", ADMINISTRATOR, gives=dict[str, Any])
async def payload(edge: Edge, job: Job) -> Response:
    """Show the job payload, the JSON that the job's runner gets, without secrets."""
    payload_view = await build_payload_view(edge.store, job, public_url=edge.settings.url, now=edge.clock.wall())
    headers = {"Content-Disposition": f'attachment; filename="job-{job.id}-payload.json"'}
    return json_answer(payload_view, headers=headers)


@routes.put("/api/remuda/v1/jobs/{job_id}", of_job(Level.MAINTAINER))
async def change(edge: Edge, job: Job, caller: Caller, params: JobChange) -> TimedJobShape:
    """Change the priority of a waiting job."""
    project = await edge.store.projects.load_project(job.project_id)
    if params.priority > (project.priority if project else 0) and not caller.user.is_admin:
        raise forbidden("only administrators may give a job a higher priority than its project has")
    return await with_times(edge, await edge.dispatch.user_commands.prioritize_job(job.id, params.priority), caller)
