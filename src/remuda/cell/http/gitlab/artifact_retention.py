"""Keep, delete and erase artifacts and logs of jobs, in GitLab's form; and Remuda's list of the files in an archive."""

import msgspec
from starlette.requests import Request

from remuda.cell.blobs.archives import Folder, Listed, list_entries, list_folder
from remuda.cell.errors import InvalidError
from remuda.cell.http.edge.access import in_project, of_job
from remuda.cell.http.edge.admission import Caller, check_acts_on
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import forbidden, not_found
from remuda.cell.http.edge.paging import Paged, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.jobs import describe_job
from remuda.cell.http.gitlab.views import JobShape, MessageShape
from remuda.cell.http.runner.artifacts import check_access
from remuda.cell.operations import retention
from remuda.cell.values import Artifact, Job, JobFilter, Page, Project
from remuda.cell.values.people import Level
from remuda.model.job import FINAL

_ROOT = "/api/v4/projects/{id}/jobs/{job_id}"
routes = Routes()


@routes.post(f"{_ROOT}/artifacts/keep", in_project(Level.DEVELOPER), status=200)
async def keep(edge: Edge, caller: Caller, job: Job, project: Project) -> JobShape:
    """Keep the artifacts of a job, so that they never expire."""
    check_acts_on(caller, project, job)
    if not await edge.store.jobs.list_artifacts(job.id):
        raise not_found("Artifacts")
    await retention.keep_artifacts(edge.store, job.id)
    return await _show_again(edge, job)


@routes.delete(f"{_ROOT}/artifacts", in_project(Level.MAINTAINER))
async def delete(edge: Edge, job: Job) -> None:
    """Delete the artifacts of a job."""
    await retention.delete_artifacts(edge.store, edge.blobs, job.id)


@routes.delete("/api/v4/projects/{id}/artifacts", in_project(Level.MAINTAINER), status=202)
async def delete_all(edge: Edge, project: Project) -> MessageShape:
    """Delete the artifacts of all finished jobs of the project."""
    page = Page(size=100, ascending=True, counted=False)
    while jobs := (await edge.store.jobs.list_jobs(page, JobFilter(project_id=project.id, with_retried=True)))[0]:
        for job in jobs:
            if job.state in FINAL:
                await retention.delete_artifacts(edge.store, edge.blobs, job.id)
        page = msgspec.structs.replace(page, after=jobs[-1].id)
    return MessageShape(message="202 Accepted")


@routes.post(f"{_ROOT}/erase", in_project(Level.DEVELOPER))
async def erase(edge: Edge, caller: Caller, job: Job, project: Project) -> JobShape:
    """Delete the log and artifacts of a job."""
    check_acts_on(caller, project, job)
    if (caller.level_in(project) or 0) < Level.MAINTAINER:
        pipeline = await edge.store.pipelines.load_pipeline(job.pipeline_id)
        if pipeline is None or pipeline.user_id != caller.user.id:
            raise forbidden("only maintainers and the user who started the pipeline may erase a job")
    try:
        await retention.erase_job(edge.store, edge.traces, edge.blobs, job.id, now=edge.clock.now())
    except InvalidError:
        raise forbidden("Job is not erasable!") from None
    return await _show_again(edge, job)


async def _show_again(edge: Edge, job: Job) -> JobShape:
    return await describe_job(edge, await edge.store.jobs.load_job(job.id) or job)


@routes.get("/api/remuda/v1/jobs/{job_id}/artifacts/files", of_job(Level.REPORTER))
async def files(edge: Edge, request: Request, job: Job) -> Paged[Listed]:
    """List the files in the artifacts archive of a job."""
    await check_access(edge, request, job)
    archive = await _find_archive(edge, job)
    page = page_of(request)
    entries, total = await list_entries(
        edge.blobs,
        archive.blob,
        first=(page.number - 1) * page.size,
        count=page.size,
        limit_entries=edge.settings.archive_limit_entries,
        run=edge.parsers.run,
    )
    return Paged(entries, total, page)


@routes.get("/api/remuda/v1/jobs/{job_id}/artifacts/folder", of_job(Level.REPORTER), query={"folder": str})
async def folder(edge: Edge, request: Request, job: Job) -> Folder:
    """List what a folder in the artifacts archive of a job contains: by default the outermost one."""
    archive = await _find_archive(edge, job)
    path = request.query_params.get("folder", "")
    if path and not path.endswith("/"):
        path += "/"
    limit = edge.settings.archive_limit_entries
    return await list_folder(edge.blobs, archive.blob, path, limit_entries=limit, run=edge.parsers.run)


async def _find_archive(edge: Edge, job: Job) -> Artifact:
    artifacts = await edge.store.jobs.list_artifacts(job.id)
    archive = next((artifact for artifact in artifacts if artifact.type == "archive"), None)
    if archive is None:
        raise not_found("Artifacts")
    return archive
