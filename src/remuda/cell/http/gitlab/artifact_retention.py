"""Keep, delete and erase what a job left, in GitLab's form; and Remuda's list of the files in an archive.

Checks who may; `remuda.cell.operations.retention` does it.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.blobs.archives import Listed, list_entries
from remuda.cell.errors import InvalidError
from remuda.cell.http.edge.access import in_project, of_job
from remuda.cell.http.edge.admission import caller_of, check_acts_on
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import forbidden, json_answer, no_content, not_found
from remuda.cell.http.edge.lookup import any_job_in_path, job_in_path, project_in_path
from remuda.cell.http.edge.paging import page_answer, page_of
from remuda.cell.http.gitlab.jobs import describe
from remuda.cell.http.gitlab.views import JobShape, MessageShape
from remuda.cell.operations import retention
from remuda.cell.values import Job, Page
from remuda.cell.values.people import Level
from remuda.model.job import FINAL


async def keep(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/jobs/:job_id/artifacts/keep: keep the artifacts of a job for ever."""
    job, project = await job_in_path(edge, request)
    check_acts_on(caller_of(request), project, job)
    if not await edge.store.jobs.list_artifacts(job.id):
        raise not_found("Artifacts")
    await retention.keep_artifacts(edge.store, job.id)
    return await _answer(edge, job, 200)


async def delete(edge: Edge, request: Request) -> Response:
    """DELETE /projects/:id/jobs/:job_id/artifacts: delete the artifacts of a job."""
    job, _ = await job_in_path(edge, request)
    await retention.delete_artifacts(edge.store, edge.blobs, job.id)
    return no_content()


async def delete_all(edge: Edge, request: Request) -> Response:
    """DELETE /projects/:id/artifacts: delete the artifacts of all finished jobs of the project."""
    project = await project_in_path(edge, request)
    page = Page(size=100, ascending=True, counted=False)
    while jobs := (await edge.store.jobs.list_jobs(page, project_id=project.id, with_retried=True))[0]:
        for job in jobs:
            if job.state in FINAL:
                await retention.delete_artifacts(edge.store, edge.blobs, job.id)
        page = msgspec.structs.replace(page, after=jobs[-1].id)
    return json_answer(MessageShape(message="202 Accepted"), 202)


async def erase(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/jobs/:job_id/erase: delete the log and artifacts of a job."""
    job, project = await job_in_path(edge, request)
    caller = caller_of(request)
    check_acts_on(caller, project, job)
    if (caller.level_in(project) or 0) < Level.MAINTAINER:
        pipeline = await edge.store.pipelines.load_pipeline(job.pipeline_id)
        if pipeline is None or pipeline.user_id != caller.user.id:
            raise forbidden("only maintainers and the user who started the pipeline may erase a job")
    try:
        await retention.erase_job(edge.store, edge.traces, edge.blobs, job.id, now=edge.clock.now())
    except InvalidError:
        raise forbidden("Job is not erasable!") from None
    return await _answer(edge, job, 201)


async def _answer(edge: Edge, job: Job, status: int) -> Response:
    row = await edge.store.jobs.load_job(job.id) or job
    return json_answer((await describe(edge, [row]))[0], status)


async def files(edge: Edge, request: Request) -> Response:
    """GET /api/remuda/v1/jobs/:job_id/artifacts/files: list the files in the archive."""
    job = await any_job_in_path(edge, request)
    archive = next(
        (artifact for artifact in await edge.store.jobs.list_artifacts(job.id) if artifact.type == "archive"), None
    )
    if archive is None:
        raise not_found("Artifacts")
    page = page_of(request)
    shown, total = await list_entries(
        edge.blobs,
        archive.blob,
        first=(page.number - 1) * page.size,
        count=page.size,
        limit_entries=edge.settings.archive_limit_entries,
        run=edge.parsers.run,
    )
    return page_answer(request, shown, total, page)


_ROOT = "/api/v4/projects/{id}/jobs/{job_id}"

ENDPOINTS = (
    Endpoint("POST", f"{_ROOT}/artifacts/keep", keep, in_project(Level.DEVELOPER), gives=JobShape, status=200),
    Endpoint("DELETE", f"{_ROOT}/artifacts", delete, in_project(Level.MAINTAINER)),
    Endpoint(
        "DELETE",
        "/api/v4/projects/{id}/artifacts",
        delete_all,
        in_project(Level.MAINTAINER),
        gives=MessageShape,
        status=202,
    ),
    Endpoint("POST", f"{_ROOT}/erase", erase, in_project(Level.DEVELOPER), gives=JobShape),
    Endpoint("GET", "/api/remuda/v1/jobs/{job_id}/artifacts/files", files, of_job(Level.REPORTER), gives=list[Listed]),
)
