"""Runners: lists for the cell, a group and a project, a form for a new one, and the page of one."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from remuda.cell.web.page_api import Reply
from remuda.cell.web.places import load_group, load_project, project_api
from remuda.cell.web.visit import Pages, Visit

pages = Pages()

_FILTERS = ("search", "status", "type", "tag_list", "version_prefix", "paused")


async def _list_runners(visit: Visit, address: str) -> Reply:
    query: dict[str, Any] = {name: visit.query(name) for name in _FILTERS}
    return await visit.api.call("GET", address, {**query, "page": visit.page_number, "per_page": 20})


def _is_filtered(visit: Visit) -> bool:
    return any(visit.query(name) for name in _FILTERS)


@pages.get("/runners")
async def list_runners(visit: Visit) -> Response:
    runners = await _list_runners(visit, "/api/v4/runners")
    return visit.render("runners.html", runners=runners, page=visit.page_number, is_filtered=_is_filtered(visit))


@pages.get("/groups/{group:path}/-/runners")
async def list_group_runners(visit: Visit) -> Response:
    group = await load_group(visit)
    return visit.render(
        "runners_group.html",
        group=group,
        tab="Runners",
        runners=await _list_runners(visit, f"/api/v4/groups/{group['id']}/runners"),
        page=visit.page_number,
        is_filtered=_is_filtered(visit),
    )


@pages.get("/{project:path}/-/runners")
async def list_project_runners(visit: Visit) -> Response:
    project = await load_project(visit)
    return visit.render(
        "runners_project.html",
        project=project,
        tab="Runners",
        runners=await _list_runners(visit, f"{project_api(project)}/runners"),
        page=visit.page_number,
        is_filtered=_is_filtered(visit),
    )


@pages.get("/runners/new")
async def show_new_runner(visit: Visit) -> Response:
    is_admin = visit.caller.user.is_admin
    return visit.render(
        "runner_new.html",
        is_admin=is_admin,
        group=visit.query("group"),
        project=visit.query("project"),
        groups=await visit.api.get("/api/v4/groups", per_page=100),
        projects=await visit.api.get("/api/v4/projects", per_page=100, membership=not is_admin or None),
    )


@pages.get("/runners/{id}")
async def show_runner(visit: Visit) -> Response:
    number = visit.number("id")
    address = f"/api/v4/runners/{number}"
    runner = await visit.api.get(address)
    jobs = await visit.api.find(f"{address}/jobs", per_page=15)
    return visit.render(
        "runner.html",
        runner=runner,
        managers=await visit.api.get(f"{address}/managers", per_page=100),
        # Only those who may manage a runner see its jobs.
        may_manage=jobs is not None,
        jobs=jobs or [],
        success=None if jobs is None else await _count_outcomes(visit, address),
    )


async def _count_outcomes(visit: Visit, address: str) -> Mapping[str, Any]:
    """How many jobs of a runner succeeded and failed, and the share of successes in percent (None: no job ended)."""
    counts = {}
    for status in ("success", "failed"):
        counts[status] = (await visit.api.call("GET", f"{address}/jobs", {"status": status, "per_page": 1})).total
    ended = sum(counts.values())
    return counts | {"percent": round(100 * counts["success"] / ended) if ended else None}
