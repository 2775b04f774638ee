"""Pipelines as GitLab's API has them: create, show, list, cancel, retry."""

import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.errors import InvalidError
from remuda.cell.http.bodies import parameters
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import ApiError, bad_parameter, json_answer, not_found
from remuda.cell.http.lookup import pipeline_in_path, project_in_path
from remuda.cell.http.pagination import page_answer, page_of
from remuda.cell.http.views import pipeline_summary, pipeline_view
from remuda.cell.values import Page, Pipeline, Project

VARIABLE_NAME = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)


class PipelineVariable(msgspec.Struct, kw_only=True):
    """A variable given to one pipeline."""

    key: str
    value: str = ""


class NewPipeline(msgspec.Struct, kw_only=True):
    """POST /projects/:id/pipeline."""

    ref: str
    variables: list[PipelineVariable] = []


async def create(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/pipeline."""
    project = await project_in_path(edge, request)
    asked = await parameters(request, NewPipeline, limit_bytes=edge.settings.body_limit_bytes)
    for variable in asked.variables:
        if not VARIABLE_NAME.fullmatch(variable.key):
            raise bad_parameter("variables[key] is invalid: letters, digits and _ only")
    variables = {variable.key: variable.value for variable in asked.variables}
    try:
        pipeline = await edge.projects.create_pipeline(project, asked.ref, variables)
    except InvalidError as error:
        raise ApiError(400, {"message": {"base": [str(error)]}}) from None
    return _answer(edge, pipeline, project, 201)


def _answer(edge: Edge, pipeline: Pipeline, project: Project, status: int = 200) -> Response:
    return json_answer(pipeline_view(pipeline, project, edge.settings.url, edge.clock.now()), status)


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines."""
    project = await project_in_path(edge, request)
    page, query = page_of(request), request.query_params
    found, total = await edge.store.pipelines(
        project.id, page, ref=query.get("ref", ""), status=query.get("status", ""), sha=query.get("sha", "")
    )
    return page_answer(request, [pipeline_summary(one, project, edge.settings.url) for one in found], total, page)


async def latest(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/latest."""
    project = await project_in_path(edge, request)
    ref = request.query_params.get("ref") or edge.projects.repos.head(project.repo_path) or project.default_branch
    found, _ = await edge.store.pipelines(project.id, Page(size=1), ref=ref)
    if not found:
        raise not_found("Pipeline")
    return _answer(edge, found[0], project)


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/:pipeline_id."""
    pipeline, project = await pipeline_in_path(edge, request)
    return _answer(edge, pipeline, project)


async def variables(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/pipelines/:pipeline_id/variables."""
    pipeline, _ = await pipeline_in_path(edge, request)
    given = [{"key": key, "value": value, "variable_type": "env_var"} for key, value in pipeline.variables.items()]
    return json_answer(given)


async def cancel(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/pipelines/:pipeline_id/cancel."""
    pipeline, project = await pipeline_in_path(edge, request)
    return _answer(edge, await edge.dispatch.cancel_pipeline(pipeline.id), project)


async def retry(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/pipelines/:pipeline_id/retry."""
    pipeline, project = await pipeline_in_path(edge, request)
    return _answer(edge, await edge.dispatch.retry_pipeline(pipeline.id), project, 201)


_ROOT = "/api/v4/projects/{id}/pipelines"

ENDPOINTS = (
    Endpoint("POST", "/api/v4/projects/{id}/pipeline", create),
    Endpoint("GET", _ROOT, list_all),
    Endpoint("GET", f"{_ROOT}/latest", latest),
    Endpoint("GET", f"{_ROOT}/{{pipeline_id}}", show),
    Endpoint("GET", f"{_ROOT}/{{pipeline_id}}/variables", variables),
    Endpoint("POST", f"{_ROOT}/{{pipeline_id}}/cancel", cancel),
    Endpoint("POST", f"{_ROOT}/{{pipeline_id}}/retry", retry),
)
