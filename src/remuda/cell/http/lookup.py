"""From the names in a request's path to the things they name; 404 in GitLab's words when there is none.

A project is named by its id or by its full path with every slash encoded, as in GitLab.
"""

from urllib.parse import unquote

from starlette.requests import Request

from remuda.cell.http import auth
from remuda.cell.http.edge import Edge
from remuda.cell.http.errors import bad_parameter, not_found
from remuda.cell.values import Job, Pipeline, Project, Runner
from remuda.model.job import JobId, PipelineId, ProjectId, RunnerId

_MAX_DIGITS = 18


def text_in_path(request: Request, name: str) -> str:
    """A part of the path, decoded. The router sees the path as it was sent, so an encoded slash stays in its part."""
    return unquote(request.path_params[name])


def number_in_path(request: Request, name: str) -> int:
    """A part of the path that must be an id."""
    text = request.path_params[name]
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
        raise bad_parameter(f"{name} is invalid")
    return int(text)


async def project_in_path(edge: Edge, request: Request) -> Project:
    text = text_in_path(request, "id")
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        project = await edge.store.project(ProjectId(int(text)))
    else:
        project = await edge.store.project_by_path(text)
    if project is None:
        raise not_found("Project")
    return project


async def project_of_caller(edge: Edge, request: Request) -> Project:
    """The project in the path, if the caller is a user or one of its jobs."""
    token = request.headers.get("job-token") or request.query_params.get("job_token")
    if not token:
        await auth.user_of(edge, auth.user_token_in(request.headers))
        return await project_in_path(edge, request)
    caller = await auth.job_of(edge, token)
    project = await project_in_path(edge, request)
    if project.id != caller.project_id:
        raise not_found("Project")
    return project


async def pipeline_in_path(edge: Edge, request: Request) -> tuple[Pipeline, Project]:
    project = await project_in_path(edge, request)
    pipeline = await edge.store.pipeline(PipelineId(number_in_path(request, "pipeline_id")))
    if pipeline is None or pipeline.project_id != project.id:
        raise not_found("Pipeline")
    return pipeline, project


async def job_in_path(edge: Edge, request: Request) -> tuple[Job, Project]:
    project = await project_in_path(edge, request)
    job = await any_job_in_path(edge, request)
    if job.project_id != project.id:
        raise not_found("Job")
    return job, project


async def any_job_in_path(edge: Edge, request: Request) -> Job:
    """A job by its id alone."""
    job = await edge.store.job(JobId(number_in_path(request, "job_id")))
    if job is None:
        raise not_found("Job")
    return job


async def runner_in_path(edge: Edge, request: Request) -> Runner:
    runner = await edge.store.runner(RunnerId(number_in_path(request, "runner_id")))
    if runner is None:
        raise not_found("Runner")
    return runner
