"""Loads the project, job or other object that a request's path names; 404 in GitLab's words if there is none. A project
or group is named by its id or by its full path with every slash encoded, as in GitLab."""

from urllib.parse import unquote

from starlette.requests import Request

from remuda.cell.http.edge.bodies import is_number
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.values import Job, Pipeline, Project, Runner
from remuda.cell.values.people import Namespace
from remuda.model.job import JobId, PipelineId, ProjectId, RunnerId


def text_in_path(request: Request, name: str) -> str:
    """The path parameter `name`, decoded after the router has matched: an encoded slash (%2F) does not split it."""
    return unquote(request.path_params[name])


def number_in_path(request: Request, name: str) -> int:
    """The path parameter `name` as a number. Raises ApiError 400 if it is not a number."""
    text = request.path_params[name]
    if not is_number(text):
        raise bad_parameter(f"{name} is invalid")
    return int(text)


async def project_in_path(edge: Edge, request: Request) -> Project:
    """The project that `{id}` in the path names, loaded once per request. 404 if it does not exist or was deleted."""
    loaded: Project | None = getattr(request.state, "project", None)
    if loaded is not None:
        return loaded
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


async def existing_project(edge: Edge, number: int, what: str = "Project") -> Project:
    """The project with this id; 404 if it does not exist or was deleted. `what` names it in the error message."""
    project = await edge.store.projects.load_project(ProjectId(number))
    if project is None or project.removed_at is not None:
        raise not_found(what)
    return project


async def existing_group(edge: Edge, number: int, what: str = "Group") -> Namespace:
    """The group with this id; 404 if there is none. `what` names it in the error message."""
    group = await edge.store.people.load_namespace(number)
    if group is None or not group.is_group:
        raise not_found(what)
    return group


async def group_in_path(edge: Edge, request: Request) -> Namespace:
    """The group that `{id}` in the path names by its id or full path; 404 if there is none."""
    number, text = number_or_text(request)
    group = await (
        edge.store.people.find_namespace(text) if number is None else edge.store.people.load_namespace(number)
    )
    if group is None or not group.is_group:
        raise not_found("Group")
    return group


def number_or_text(request: Request, name: str = "id") -> tuple[int | None, str]:
    """The path parameter `name`, percent-decoded, as a number (None if it is not one) and as text."""
    text = text_in_path(request, name)
    return int(text) if is_number(text) else None, text


async def pipeline_in_path(edge: Edge, request: Request) -> Pipeline:
    """The pipeline `{pipeline_id}` in the path; 404 if the project `{id}` has no such pipeline."""
    project = await project_in_path(edge, request)
    pipeline = await edge.store.pipelines.load_pipeline(PipelineId(number_in_path(request, "pipeline_id")))
    if pipeline is None or pipeline.project_id != project.id:
        raise not_found("Pipeline")
    return pipeline


async def job_in_path(edge: Edge, request: Request) -> Job:
    """The job `{job_id}` in the path; 404 if the project `{id}` has no such job."""
    project, job = await project_in_path(edge, request), await any_job_in_path(edge, request)
    if job.project_id != project.id:
        raise not_found("Job")
    return job


async def any_job_in_path(edge: Edge, request: Request) -> Job:
    """The job `{job_id}` in the path, of any project; 404 if there is none."""
    job = await edge.store.jobs.load_job(JobId(number_in_path(request, "job_id")))
    if job is None:
        raise not_found("Job")
    return job


async def runner_in_path(edge: Edge, request: Request) -> Runner:
    runner = await edge.store.runners.load_runner(RunnerId(number_in_path(request, "runner_id")))
    if runner is None:
        raise not_found("Runner")
    return runner
