"""From the names in a request's path to the things they name; 404 in GitLab's words when there is none.

A project is named by its id or by its full path with every slash encoded, as in GitLab.
"""

from urllib.parse import unquote

from starlette.requests import Request

from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.values import Job, Pipeline, Project, Runner
from remuda.cell.values.people import Namespace
from remuda.model.job import JobId, PipelineId, ProjectId, RunnerId

MAX_DIGITS = 18


def text_in_path(request: Request, name: str) -> str:
    """A part of the path, decoded. The router sees the path as it was sent, so an encoded slash stays in its part."""
    return unquote(request.path_params[name])


def number_in_path(request: Request, name: str) -> int:
    """A part of the path that must be an id."""
    text = request.path_params[name]
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise bad_parameter(f"{name} is invalid")
    return int(text)


async def project_in_path(edge: Edge, request: Request) -> Project:
    """Looked up once a request."""
    known: Project | None = getattr(request.state, "project", None)
    if known is not None:
        return known
    number, text = number_or_text(request)
    project = await (
        edge.store.projects.find_project(text)
        if number is None
        else edge.store.projects.load_project(ProjectId(number))
    )
    if project is None or project.removed_at is not None:
        raise not_found("Project")
    request.state.project = project
    return project


async def group_in_path(edge: Edge, request: Request) -> Namespace:
    """A group by its id or full path."""
    number, text = number_or_text(request)
    found = await (
        edge.store.people.find_namespace(text) if number is None else edge.store.people.load_namespace(number)
    )
    if found is None or not found.is_group:
        raise not_found("Group")
    return found


def number_or_text(request: Request, name: str = "id") -> tuple[int | None, str]:
    """A part of the path that is an id, or else a path or a name."""
    text = text_in_path(request, name)
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None, text


async def pipeline_in_path(edge: Edge, request: Request) -> tuple[Pipeline, Project]:
    project = await project_in_path(edge, request)
    pipeline = await edge.store.pipelines.load_pipeline(PipelineId(number_in_path(request, "pipeline_id")))
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
    job = await edge.store.jobs.load_job(JobId(number_in_path(request, "job_id")))
    if job is None:
        raise not_found("Job")
    return job


async def runner_in_path(edge: Edge, request: Request) -> Runner:
    runner = await edge.store.runners.load_runner(RunnerId(number_in_path(request, "runner_id")))
    if runner is None:
        raise not_found("Runner")
    return runner
