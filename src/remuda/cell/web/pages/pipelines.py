"""Pages about the pipelines of a project: the list with its filters, and the form that starts one."""

import json
from typing import Any

from starlette.responses import Response

from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.gitlab.pipeline_create import SOURCES
from remuda.cell.values.people import Level
from remuda.cell.web.errors import describe_error
from remuda.cell.web.levels import find_level
from remuda.cell.web.pipelines.job_cards import ORDER_OF_STATUSES
from remuda.cell.web.places import load_project, project_api
from remuda.cell.web.visit import Pages, Visit

PER_PAGE = 30
MOST_REFS = 100
"""How many branches, and how many tags, the form suggests."""
_FILTERS = ("status", "ref", "source", "username")
pages = Pages()


@pages.get("/{project:path}/-/pipelines")
async def list_pipelines(visit: Visit) -> Response:
    project = await load_project(visit)
    page = int(text) if (text := visit.query("page")).isdecimal() and 0 < len(text) < 8 else 1
    filters = {name: visit.query(name) for name in _FILTERS}
    address = f"/api/remuda/v1/projects/{project['id']}/pipelines"
    pipelines = await visit.api.call("GET", address, {**filters, "page": max(page, 1), "per_page": PER_PAGE})
    return visit.render(
        "pipelines.html",
        project=project,
        tab="Pipelines",
        pipelines=pipelines,
        page=page,
        filters=filters,
        statuses=ORDER_OF_STATUSES,
        sources=sorted(SOURCES),
        level=await find_level(visit, project),
    )


@pages.get("/{project:path}/-/pipelines/new")
async def show_start_form(visit: Visit) -> Response:
    project = await load_project(visit)
    ref = visit.query("ref") or project["default_branch"] or ""
    form: dict[str, Any] = {"inputs": [], "variables": [], "mistakes": []}
    problem = ""
    try:
        form = await visit.api.get(f"/api/remuda/v1/projects/{project['id']}/pipeline_form", ref=ref)
    except ApiError as error:
        if error.status != 400:
            raise
        problem = describe_error(error).removeprefix("base: ")
    repository = f"{project_api(project)}/repository"
    names = [
        entry["name"]
        for kind in ("branches", "tags")
        for entry in await visit.api.get(f"{repository}/{kind}", per_page=MOST_REFS)
    ]
    return visit.render(
        "pipeline_new.html",
        project=project,
        tab="Pipelines",
        ref=ref,
        refs=list(dict.fromkeys(names)),
        inputs=[{**declared, "shown": _show_value(declared)} for declared in form["inputs"]],
        variables=form["variables"],
        mistakes=form["mistakes"],
        problem=problem,
        can_start=(await find_level(visit, project)) >= Level.DEVELOPER,
    )


def _show_value(declared: dict[str, Any]) -> str:
    """Return the default of an input as the text of its field: a list as JSON; empty if it has none."""
    if not declared["has_default"]:
        return ""
    default = declared["default"]
    return default if isinstance(default, str) else json.dumps(default)
