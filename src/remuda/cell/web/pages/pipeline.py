"""The page of one pipeline: its graph by stages or by needs, where its time went, its tests and its artifacts."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from remuda.cell.http.edge.bodies import is_number
from remuda.cell.http.edge.errors import not_found
from remuda.cell.values.people import Level
from remuda.cell.web.levels import find_level
from remuda.cell.web.pipelines.critical_path import CriticalPath, find_critical_path
from remuda.cell.web.pipelines.job_cards import (
    NOT_STARTED,
    OVER,
    count_statuses,
    explain_state,
    join_names,
    list_downstream,
    list_pipeline_ids,
    sort_into_stages,
)
from remuda.cell.web.pipelines.needs_graph import build_graph, lay_out, select_edges
from remuda.cell.web.pipelines.time_bars import lay_out_times
from remuda.cell.web.places import load_project, project_api
from remuda.cell.web.visit import Pages, Visit
from remuda.wire.user_api import PipelineProgress

VIEWS = {"stages": "Stages", "needs": "Needs", "time": "Time", "tests": "Tests", "artifacts": "Artifacts"}
FILES_PER_PAGE = 100
_PLACE = re.compile(r"(?P<place>\S[^:\n]*:\d+:\d+): (?P<text>.*)", re.DOTALL)
pages = Pages()


class Mention(NamedTuple):
    """An error or a warning about the pipeline file."""

    place: str
    """FILE:LINE:COLUMN; empty if the message has none."""
    text: str


@pages.get("/{project:path}/-/pipelines/{number}")
async def show_pipeline(visit: Visit) -> Response:
    project = await load_project(visit)
    number = visit.text("number")
    if not is_number(number):
        raise not_found("Pipeline")
    root = f"{project_api(project)}/pipelines/{number}"
    own_root = f"/api/remuda/v1/projects/{project['id']}/pipelines/{number}"
    pipeline = await visit.api.get(root)
    progress = msgspec.convert(
        await visit.api.get(f"/api/remuda/v1/pipelines/{number}/progress", graph=True), PipelineProgress
    )
    view = visit.query("view") if visit.query("view") in VIEWS else "stages"
    path = find_critical_path(progress.jobs, created_at=progress.created_at or 0.0, now=visit.edge.clock.now())
    level = await find_level(visit, project)
    # While jobs run, each new report would make the cell read all others again.
    tests = await visit.api.get(f"{root}/test_report_summary") if pipeline["status"] in (*OVER, "manual") else None
    return visit.render(
        "pipeline.html",
        project=project,
        tab="Pipelines",
        pipeline=pipeline,
        commit=await visit.api.find(f"{project_api(project)}/repository/commits/{pipeline['sha']}", stats=False),
        errors=split_mentions(pipeline["yaml_errors"]),
        warnings=split_mentions(pipeline["yaml_warnings"]),
        progress=progress,
        counts=count_statuses(progress.jobs),
        pipeline_ids=list_pipeline_ids(progress),
        view=view,
        views=VIEWS,
        path=path,
        critical=path.job_ids,
        tests=tests,
        started_at=datetime.fromisoformat(pipeline["started_at"]).timestamp() if pipeline["started_at"] else None,
        can_retry=any(job.status in ("failed", "canceled") for job in progress.jobs),
        level=level,
        levels=await _find_levels(visit, progress, {project["id"]: level}),
        sort_into_stages=sort_into_stages,
        list_downstream=list_downstream,
        explain_state=explain_state,
        join_names=join_names,
        count_statuses=count_statuses,
        not_started=NOT_STARTED,
        over=OVER,
        DEVELOPER=Level.DEVELOPER,
        OWNER=Level.OWNER,
        **await _load_view(visit, view, progress, path, own_root),
    )


async def _load_view(
    visit: Visit, view: str, progress: PipelineProgress, path: CriticalPath, own_root: str
) -> dict[str, Any]:
    """Load or compute what only one of the views shows."""
    match view:
        case "needs":
            graph = build_graph(progress.jobs)
            jobs = {job.name: job for job in progress.jobs}
            return {"layout": lay_out(graph), "jobs": jobs, "critical_edges": select_edges(graph, path.edges)}
        case "time":
            chart = lay_out_times(
                progress.jobs,
                created_at=progress.created_at or 0.0,
                finished_at=progress.finished_at,
                now=visit.edge.clock.now(),
            )
            return {"chart": chart}
        case "tests":
            return {"digest": await visit.api.get(f"{own_root}/tests")}
        case "artifacts":
            page = int(text) if is_number(text := visit.query("page")) else 1
            query = {"page": max(page, 1), "per_page": FILES_PER_PAGE}
            return {"files": await visit.api.call("GET", f"{own_root}/artifacts", query), "page": max(page, 1)}
    return {}


async def _find_levels(visit: Visit, progress: PipelineProgress, levels: dict[int, int]) -> Mapping[int, int]:
    """Add the user's levels in the projects of all downstream pipelines to `levels`, and return it."""
    for _, child in list_downstream(progress):
        if child.project_id not in levels:
            project = await visit.api.find(f"/api/v4/projects/{child.project_id}")
            levels[child.project_id] = await find_level(visit, project) if project else 0
        await _find_levels(visit, child, levels)
    return levels


def split_mentions(text: str | None) -> list[Mention]:
    """Return the errors or warnings of a pipeline, a line each, with their places."""
    mentions = []
    for line in (text or "").splitlines():
        match = _PLACE.fullmatch(line)
        mentions.append(Mention(match["place"], match["text"]) if match else Mention("", line))
    return mentions
