"""Pipelines in GitLab's form: show, list, rename, cancel, retry, delete. `pipeline_create` creates them."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request

from remuda.cell.errors import ConflictError
from remuda.cell.http.edge.access import USER, in_project
from remuda.cell.http.edge.admission import Caller, check_acts_on
from remuda.cell.http.edge.bodies import choice_in_query, time_in_query
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_field, not_found
from remuda.cell.http.edge.paging import KEYSET, Paged, page_by_id, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.jobs import list_own_projects
from remuda.cell.http.gitlab.pipeline_create import SOURCES, describe_pipeline
from remuda.cell.http.gitlab.variables import GivenVariableShape, given_view
from remuda.cell.http.gitlab.views import (
    PipelineShape,
    PipelineSummaryShape,
    UserShape,
    pipeline_summary,
    pipeline_user_view,
    time_text,
)
from remuda.cell.operations import retention
from remuda.cell.projects.refs import default_branch, split_name
from remuda.cell.values import Page, Pipeline, PipelineFilter, Project
from remuda.cell.values.changes import Changes
from remuda.cell.values.people import Level
from remuda.model.job import FINAL, JobState
from remuda.model.progress import OVER

STATUSES = frozenset(state.value for state in JobState) - {JobState.LEASED.value}
ORDERS = ("id", "status", "ref", "updated_at", "user_id")
_SCOPES = {
    "running": PipelineFilter(statuses=("running",)),
    "pending": PipelineFilter(statuses=("pending",)),
    "finished": PipelineFilter(statuses=("success", "failed", "canceled", "skipped")),
    "branches": PipelineFilter(tag=False),
    "tags": PipelineFilter(tag=True),
}
_TIMES = ("updated_after", "updated_before", "created_after", "created_before")
_MAX_NAME = 255

LISTED = {
    "scope": str,
    "status": str,
    "source": str,
    "ref": str,
    "sha": str,
    "name": str,
    "username": str,
    "yaml_errors": bool,
    "order_by": Literal[ORDERS],
    "sort": Literal["asc", "desc"],
    **dict.fromkeys(_TIMES, str),
}


_ROOT = "/api/v4/projects/{id}/pipelines"
routes = Routes()


class Metadata(msgspec.Struct, kw_only=True):
    name: str


def filter_of(request: Request) -> PipelineFilter:
    """The pipeline filter in the query. Raises ApiError 400, which names the parameter, if a value is not valid."""
    query = request.query_params
    pipeline_filter = _SCOPES.get(choice_in_query(request, "scope", _SCOPES), PipelineFilter())
    if status := choice_in_query(request, "status", STATUSES):
        pipeline_filter = replace(
            pipeline_filter,
            statuses=(status,) if pipeline_filter.statuses is None or status in pipeline_filter.statuses else (),
        )
    return replace(
        pipeline_filter,
        ref=query.get("ref", ""),
        sha=query.get("sha", ""),
        source=choice_in_query(request, "source", SOURCES),
        name=query.get("name", ""),
        has_mistakes={"true": True, "false": False}.get(choice_in_query(request, "yaml_errors", ("true", "false"))),
        order_by=choice_in_query(request, "order_by", ORDERS, "id"),
        ascending=choice_in_query(request, "sort", ("asc", "desc")) == "asc",
        **{name: time_in_query(request, name) for name in _TIMES},
    )


@routes.get(_ROOT, in_project(Level.REPORTER), query=LISTED | KEYSET)
async def list_all(edge: Edge, request: Request, project: Project) -> Paged[PipelineSummaryShape]:
    """List the pipelines of a project."""
    pipelines, total, page = await find_page(edge, request, project)
    return Paged([pipeline_summary(pipeline, project, edge.settings.url) for pipeline in pipelines], total, page)


async def find_page(edge: Edge, request: Request, project: Project) -> tuple[Sequence[Pipeline], int, Page]:
    """The pipelines of a project that the query selects: one page of them, and their number. Raises ApiError 400."""
    pipeline_filter = filter_of(request)
    page = page_of(request) if request.query_params.get("order_by", "id") != "id" else page_by_id(request)
    if username := request.query_params.get("username"):
        user = await edge.store.people.find_user(username)
        pipeline_filter = replace(pipeline_filter, user_id=user.id if user else 0)
    pipelines, total = await edge.store.pipelines.list_pipelines(project.id, page, pipeline_filter)
    return pipelines, total, page


@routes.get(f"{_ROOT}/latest", in_project(Level.REPORTER), query={"ref": str})
async def latest(edge: Edge, request: Request, project: Project) -> PipelineShape:
    """Show the newest pipeline of a ref."""
    ref = request.query_params.get("ref") or default_branch(edge.projects.repos, project)
    ref, is_tag = await split_name(edge.store.projects, project.id, ref)
    pipelines, _ = await edge.store.pipelines.list_pipelines(
        project.id, Page(size=1), PipelineFilter(ref=ref, tag=is_tag)
    )
    if not pipelines:
        raise not_found("Pipeline")
    return describe_pipeline(edge, pipelines[0], project)


@routes.get(f"{_ROOT}/{{pipeline_id}}", in_project(Level.REPORTER))
async def show(edge: Edge, pipeline: Pipeline, project: Project) -> PipelineShape:
    """Show a pipeline."""
    return describe_pipeline(edge, pipeline, project, coverage=await _coverage(edge, pipeline))


async def _coverage(edge: Edge, pipeline: Pipeline) -> float | None:
    """Mean test coverage in percent of a finished pipeline's jobs; None if not finished or no job reports any."""
    family = await edge.store.pipelines.load_family(pipeline.id) if pipeline.status in OVER else None
    of_jobs = [job.coverage for job in family.jobs] if family else []
    external = [status.coverage for status in pipeline.external if family and not status.retried]
    coverages = [coverage for coverage in (*of_jobs, *external) if coverage is not None]
    return sum(coverages) / len(coverages) if coverages else None


@routes.get(f"{_ROOT}/{{pipeline_id}}/variables", in_project(Level.DEVELOPER))
async def variables(edge: Edge, pipeline: Pipeline) -> list[GivenVariableShape]:
    """List the variables that were given when the pipeline was created."""
    return [given_view(key, value, pipeline.file_variables) for key, value in pipeline.variables.items()]


@routes.put(f"{_ROOT}/{{pipeline_id}}/metadata", in_project(Level.DEVELOPER))
async def rename(edge: Edge, caller: Caller, pipeline: Pipeline, project: Project, params: Metadata) -> PipelineShape:
    """Rename a pipeline."""
    check_acts_on(caller, project, pipeline)
    name = params.name.strip()
    if len(name) > _MAX_NAME or not name.isprintable():
        raise bad_field("name", f"is too long (maximum is {_MAX_NAME} characters) or has control characters")
    applied = await edge.store.pipelines.change_family(
        pipeline.id, lambda family: Changes(pipeline=replace(family.pipeline, name=name))
    )
    return describe_pipeline(edge, applied.pipeline or pipeline, project)


@routes.post(f"{_ROOT}/{{pipeline_id}}/cancel", in_project(Level.DEVELOPER), status=200)
async def cancel(edge: Edge, caller: Caller, pipeline: Pipeline, project: Project) -> PipelineShape:
    """Cancel all unfinished jobs of a pipeline, and its child pipelines."""
    check_acts_on(caller, project, pipeline)
    return describe_pipeline(edge, await edge.dispatch.changes.cancel_pipeline(pipeline.id), project)


@routes.post(f"{_ROOT}/{{pipeline_id}}/retry", in_project(Level.DEVELOPER))
async def retry(edge: Edge, caller: Caller, pipeline: Pipeline, project: Project) -> PipelineShape:
    """Retry the failed and canceled jobs of a pipeline."""
    check_acts_on(caller, project, pipeline)
    return describe_pipeline(edge, await edge.dispatch.user_commands.retry_pipeline(pipeline.id), project)


@routes.delete(f"{_ROOT}/{{pipeline_id}}", in_project(Level.OWNER), also=(409,))
async def remove(edge: Edge, pipeline: Pipeline, project: Project) -> None:
    """Stop and delete a pipeline with its jobs, logs and artifacts.
    Child pipelines stay, as in GitLab."""
    if pipeline.status not in OVER:
        await edge.dispatch.changes.cancel_pipeline(pipeline.id)
    if pipeline.upstream_job_id is not None:
        upstream = await edge.store.jobs.load_job(pipeline.upstream_job_id)
        if upstream is not None and upstream.state not in FINAL:
            raise ConflictError(f"job {upstream.id} waits for this pipeline; try again when that job has finished")
    await edge.projects.repos.remove_ref(project.repo_path, f"refs/pipelines/{pipeline.id}")
    await retention.remove_pipeline(edge.store, edge.traces, edge.blobs, pipeline.id)


class RecentPipelineShape(PipelineSummaryShape, kw_only=True):
    project: str
    """The path of the project."""
    user: UserShape
    started_at: str | None
    finished_at: str | None


@routes.get("/api/remuda/v1/pipelines", USER, query=LISTED | KEYSET)
async def list_recent(edge: Edge, request: Request, caller: Caller) -> Paged[RecentPipelineShape]:
    """List the pipelines of the caller's projects, or of all projects for administrators, newest first."""
    page, selection = page_by_id(request), filter_of(request)
    pipelines, total = await edge.store.pipelines.list_recent_pipelines(
        await list_own_projects(edge, caller), page, selection
    )
    projects = {
        number: await edge.store.projects.load_project(number) for number in {row.project_id for row in pipelines}
    }
    views = [
        RecentPipelineShape.of(
            pipeline,
            **asdict(pipeline_summary(pipeline, project, edge.settings.url)),
            project=project.path,
            user=pipeline_user_view(pipeline, edge.settings.url),
            started_at=time_text(pipeline.started_at),
            finished_at=time_text(pipeline.finished_at),
        )
        for pipeline in pipelines
        if (project := projects[pipeline.project_id]) is not None and project.removed_at is None
    ]
    return Paged(views, total, page)
