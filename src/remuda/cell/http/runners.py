"""Runners as their administrator sees them: list, show, change, remove. How one is made is in `runner_api`."""

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.access import ADMINISTRATOR, MANAGES_RUNNER, SEES_RUNNER, USER
from remuda.cell.http.bodies import parameters
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import json_answer, no_content
from remuda.cell.http.lookup import runner_in_path
from remuda.cell.http.pagination import page_answer, page_of
from remuda.cell.http.runner_api import checked_runner, is_protected
from remuda.cell.http.views import manager_view, runner_view
from remuda.cell.values import Runner
from remuda.wire.runner_api import tags_of


class RunnerChange(msgspec.Struct, kw_only=True):
    """PUT /runners/:id."""

    description: str | None = None
    maintenance_note: str | None = None
    paused: bool | None = None
    active: bool | None = None
    locked: bool | None = None
    run_untagged: bool | None = None
    tag_list: str | list[str] | None = None
    access_level: str | None = None
    maximum_timeout: int | None = None
    priority: int | None = None
    """Remuda's own: of the runners that wait for a job, those with a higher one get it first."""


def changed(runner: Runner, change: RunnerChange) -> Runner:
    """The runner with what was given; 400 when it cannot be so."""
    paused = change.paused if change.active is None else not change.active
    return checked_runner(
        replace(
            runner,
            description=runner.description if change.description is None else change.description,
            maintenance_note=runner.maintenance_note if change.maintenance_note is None else change.maintenance_note,
            paused=runner.paused if paused is None else paused,
            locked=runner.locked if change.locked is None else change.locked,
            run_untagged=runner.run_untagged if change.run_untagged is None else change.run_untagged,
            tags=runner.tags if change.tag_list is None else tags_of(change.tag_list),
            protected_only=(
                runner.protected_only if change.access_level is None else is_protected(change.access_level)
            ),
            maximum_timeout=runner.maximum_timeout if change.maximum_timeout is None else change.maximum_timeout,
            priority=runner.priority if change.priority is None else change.priority,
        )
    )


async def _answer(edge: Edge, runner: Runner) -> Response:
    return json_answer(runner_view(runner, await edge.store.managers(runner.id), edge.clock.now()))


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /runners and /runners/all."""
    page, now = page_of(request), edge.clock.now()
    found, total = await edge.store.runners(page)
    views = [runner_view(runner, await edge.store.managers(runner.id), now) for runner in found]
    return page_answer(request, views, total, page)


async def show(edge: Edge, request: Request) -> Response:
    """GET /runners/:id."""
    return await _answer(edge, await runner_in_path(edge, request))


async def update(edge: Edge, request: Request) -> Response:
    """PUT /runners/:id."""
    runner = await runner_in_path(edge, request)
    change = await parameters(request, RunnerChange, limit_bytes=edge.settings.body_limit_bytes)
    new = changed(runner, change)
    await edge.store.put_runner(new)
    return await _answer(edge, new)


async def remove(edge: Edge, request: Request) -> Response:
    """DELETE /runners/:id."""
    runner = await runner_in_path(edge, request)
    await edge.store.remove_runner(runner.id)
    return no_content()


async def managers(edge: Edge, request: Request) -> Response:
    """GET /runners/:id/managers."""
    runner = await runner_in_path(edge, request)
    now = edge.clock.now()
    return json_answer([manager_view(manager, now) for manager in await edge.store.managers(runner.id)])


ENDPOINTS = (
    Endpoint("GET", "/api/v4/runners", list_all, USER.scoped("manage_runner")),
    Endpoint("GET", "/api/v4/runners/all", list_all, ADMINISTRATOR),
    Endpoint("GET", "/api/v4/runners/{runner_id}", show, SEES_RUNNER.scoped("manage_runner")),
    Endpoint("PUT", "/api/v4/runners/{runner_id}", update, MANAGES_RUNNER),
    Endpoint("DELETE", "/api/v4/runners/{runner_id}", remove, MANAGES_RUNNER),
    Endpoint("GET", "/api/v4/runners/{runner_id}/managers", managers, SEES_RUNNER.scoped("manage_runner")),
)
