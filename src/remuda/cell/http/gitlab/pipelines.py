"""Pipelines as GitLab's API has them: show, list, rename, cancel, retry. How one is made is in `starting`."""

from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.errors import ConflictError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import caller_of, check_acts_on
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import bad_field, bad_parameter, no_content, not_found
from remuda.cell.http.edge.lookup import pipeline_in_path, project_in_path
from remuda.cell.http.edge.paging import KEYSET, page_answer, page_by_id, page_of, slice_answer
from remuda.cell.http.gitlab.pipeline_create import SOURCES, pipeline_answer
from remuda.cell.http.gitlab.variables import GivenVariableShape, given_view
from remuda.cell.http.gitlab.views import PipelineShape, PipelineSummaryShape, pipeline_summary
from remuda.cell.operations import retention
from remuda.cell.projects.refs import default_branch, split_name
from remuda.cell.values import Page, Pipeline, PipelineFilter
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


class Metadata(msgspec.Struct, kw_only=True):
    """PUT /projects/:id/pipelines/:pipeline_id/metadata."""

    name: str


def filter_of(request: Request) -> PipelineFilter:
    """Which pipelines a list is asked for; 400 names what has no valid value."""
    query = request.query_params

    def one_of(name: str, *valid: str) -> str:
        value = query.get(name, "")
        if value and value not in valid:
            raise bad_parameter(f"{name} does not have a valid value")
        return value

    wanted = _SCOPES.get(one_of("scope", *_SCOPES), PipelineFilter())
    if status := one_of("status", *STATUSES):
        wanted = replace(wanted, statuses=(status,) if wanted.statuses is None or status in wanted.statuses else ())
    return replace(
        wanted,
        ref=query.get("ref", ""),
        sha=query.get("sha", ""),
        source=one_of("source", *SOURCES),
        name=query.get("name", ""),
        has_mistakes={"true": True, "false": False}.get(one_of("yaml_errors", "true", "false")),
        order_by=one_of("order_by", *ORDERS) or "id",
        ascending=one_of("sort", "asc", "desc") == "asc",
        **{name: _time(name, query[name]) for name in _TIMES if query.get(name)},
    )


def _time(name: str, text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise bad_parameter(f"{name} is invalid: a time looks like 2026-01-31T08:00:00Z") from None


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines."""
    project = await project_in_path(edge, request)
    wanted = filter_of(request)
    page = page_of(request) if request.query_params.get("order_by", "id") != "id" else page_by_id(request)
    if username := request.query_params.get("username"):
        user = await edge.store.people.find_user(username)
        wanted = replace(wanted, user_id=user.id if user else 0)
    found, total = await edge.store.pipelines.list_pipelines(project.id, page, wanted)
    return page_answer(request, [pipeline_summary(one, project, edge.settings.url) for one in found], total, page)


async def latest(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/latest."""
    project = await project_in_path(edge, request)
    ref = request.query_params.get("ref") or default_branch(edge.projects.repos, project)
    ref, is_tag = await split_name(edge.store.projects, project.id, ref)
    found, _ = await edge.store.pipelines.list_pipelines(project.id, Page(size=1), PipelineFilter(ref=ref, tag=is_tag))
    if not found:
        raise not_found("Pipeline")
    return pipeline_answer(edge, found[0], project)


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/:pipeline_id."""
    pipeline, project = await pipeline_in_path(edge, request)
    return pipeline_answer(edge, pipeline, project, coverage=await _coverage(edge, pipeline))


async def _coverage(edge: Edge, pipeline: Pipeline) -> float | None:
    """The mean of its jobs' coverages, once it is over."""
    family = await edge.store.pipelines.load_family(pipeline.id) if pipeline.status in OVER else None
    known = [job.coverage for job in family.jobs if job.coverage is not None] if family else []
    return sum(known) / len(known) if known else None


async def variables(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/:pipeline_id/variables."""
    pipeline, _ = await pipeline_in_path(edge, request)
    views = [given_view(key, value, pipeline.file_variables) for key, value in pipeline.variables.items()]
    return slice_answer(request, views)


async def rename(edge: Edge, request: Request) -> Response:
    """PUT /projects/:id/pipelines/:pipeline_id/metadata."""
    pipeline, project = await pipeline_in_path(edge, request)
    check_acts_on(caller_of(request), project, pipeline)
    name = (await parameters(request, Metadata, limit_bytes=edge.settings.body_limit_bytes)).name.strip()
    if len(name) > _MAX_NAME or not name.isprintable():
        raise bad_field("name", f"is too long (maximum is {_MAX_NAME} characters) or has control characters")
    applied = await edge.store.pipelines.change_family(
        pipeline.id, lambda family: Changes(pipeline=replace(family.pipeline, name=name))
    )
    return pipeline_answer(edge, applied.pipeline or pipeline, project)


async def cancel(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/pipelines/:pipeline_id/cancel."""
    pipeline, project = await pipeline_in_path(edge, request)
    check_acts_on(caller_of(request), project, pipeline)
    return pipeline_answer(edge, await edge.dispatch.changes.cancel_pipeline(pipeline.id), project)


async def retry(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/pipelines/:pipeline_id/retry."""
    pipeline, project = await pipeline_in_path(edge, request)
    check_acts_on(caller_of(request), project, pipeline)
    return pipeline_answer(edge, await edge.dispatch.user_commands.retry_pipeline(pipeline.id), project, 201)


async def remove(edge: Edge, request: Request) -> Response:
    """DELETE /projects/:id/pipelines/:pipeline_id: stopped, and gone with its jobs, their logs and artifacts.

    Child pipelines stay, as in GitLab.
    """
    pipeline, project = await pipeline_in_path(edge, request)
    if pipeline.status not in OVER:
        await edge.dispatch.changes.cancel_pipeline(pipeline.id)
    if pipeline.upstream_job_id is not None:
        upstream = await edge.store.jobs.load_job(pipeline.upstream_job_id)
        if upstream is not None and upstream.state not in FINAL:
            raise ConflictError(f"job {upstream.id} waits for it; try again when that is over")
    await edge.projects.repos.remove_ref(project.repo_path, f"refs/pipelines/{pipeline.id}")
    await retention.remove_pipeline(edge.store, edge.traces, edge.blobs, pipeline.id)
    return no_content()


_ROOT = "/api/v4/projects/{id}/pipelines"

ENDPOINTS = (
    Endpoint(
        "GET", _ROOT, list_all, in_project(Level.REPORTER), query=LISTED | KEYSET, gives=list[PipelineSummaryShape]
    ),
    Endpoint("GET", f"{_ROOT}/latest", latest, in_project(Level.REPORTER), query={"ref": str}, gives=PipelineShape),
    Endpoint("GET", f"{_ROOT}/{{pipeline_id}}", show, in_project(Level.REPORTER), gives=PipelineShape),
    Endpoint("DELETE", f"{_ROOT}/{{pipeline_id}}", remove, in_project(Level.OWNER), also=(409,)),
    Endpoint(
        "GET",
        f"{_ROOT}/{{pipeline_id}}/variables",
        variables,
        in_project(Level.DEVELOPER),
        gives=list[GivenVariableShape],
    ),
    Endpoint(
        "PUT",
        f"{_ROOT}/{{pipeline_id}}/metadata",
        rename,
        in_project(Level.DEVELOPER),
        takes=Metadata,
        gives=PipelineShape,
    ),
    Endpoint(
        "POST", f"{_ROOT}/{{pipeline_id}}/cancel", cancel, in_project(Level.DEVELOPER), gives=PipelineShape, status=200
    ),
    Endpoint("POST", f"{_ROOT}/{{pipeline_id}}/retry", retry, in_project(Level.DEVELOPER), gives=PipelineShape),
)
