"""Runners in GitLab's form: list, show, change, remove, link to projects. `runner_tokens` creates them. A project
runner serves at least one project, and only projects of one organization."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request

from remuda.cell.core.waiting.no_runner_reasons import view_of
from remuda.cell.http.edge.access import ADMINISTRATOR, MANAGES_RUNNER, SEES_RUNNER, USER, in_group, in_project
from remuda.cell.http.edge.admission import Caller, caller_of, runner_level
from remuda.cell.http.edge.bodies import choice_in_query, with_given
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_field, bad_parameter, forbidden, not_found
from remuda.cell.http.edge.paging import Paged, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.jobs import describe
from remuda.cell.http.gitlab.runner_tokens import ONLY_INSTANCE_RUNNERS, check_organizations
from remuda.cell.http.gitlab.views import JobShape, RunnerSummaryShape, runner_summary, time_text
from remuda.cell.http.runner.job_state import check_runner, is_protected
from remuda.cell.projects.namespaces import list_all_projects
from remuda.cell.values import JobFilter, Page, Project, Runner, RunnerManager
from remuda.cell.values.people import STATUSES, Level, Namespace, ProjectFilter, RunnerFilter, status_of
from remuda.model.job import JobState, RunnerId
from remuda.model.runner import CELL_POOL, Pool, RunnerType
from remuda.wire.runner_api import tags_of

LISTED = {
    "type": Literal["instance_type", "group_type", "project_type"],
    "status": str,
    "scope": str,
    "paused": bool,
    "tag_list": str,
    "tag_list[]": list[str],
    "version_prefix": str,
    "search": str,
}


_ONE = "/api/v4/runners/{runner_id}"
_OF_PROJECT = "/api/v4/projects/{id}/runners"
routes = Routes()


class RunnerChange(msgspec.Struct, kw_only=True):
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
    """Remuda's own: of the runners that wait for a job, the one with the highest priority gets it."""
    organization_ids: list[int] | None = None
    """Remuda's own: the organizations that an instance runner serves; empty: all organizations of the cell."""
    poll_hold_seconds: int | msgspec.UnsetType | None = msgspec.UNSET
    """Remuda's own: how long job requests of the runner are held at most; null: by the settings of the cell."""


def apply_change(runner: Runner, change: RunnerChange) -> Runner:
    """Return the runner with the fields that `change` contains. Raises ApiError 400 if the result is not valid."""
    paused = change.paused if change.active is None else not change.active
    limit = runner.maximum_timeout if change.maximum_timeout is None else change.maximum_timeout or None
    hold = runner.poll_hold_seconds if change.poll_hold_seconds is msgspec.UNSET else change.poll_hold_seconds
    changed = with_given(
        runner,
        description=change.description,
        maintenance_note=change.maintenance_note,
        paused=paused,
        locked=change.locked,
        run_untagged=change.run_untagged,
        tags=None if change.tag_list is None else tags_of(change.tag_list),
        protected_only=None if change.access_level is None else is_protected(change.access_level),
        priority=change.priority,
        organization_ids=None if change.organization_ids is None else tuple(sorted(set(change.organization_ids))),
    )
    if changed.organization_ids and changed.type is not RunnerType.INSTANCE:
        raise bad_parameter(ONLY_INSTANCE_RUNNERS)
    return check_runner(replace(changed, maximum_timeout=limit, poll_hold_seconds=hold))


class RunnerShape(RunnerSummaryShape, kw_only=True):
    online: bool
    status: str
    contacted_at: str | None
    tag_list: list[str]
    run_untagged: bool
    locked: bool
    access_level: str
    maximum_timeout: int | None
    maintenance_note: str | None
    priority: int
    poll_hold_seconds: int | None
    version: str | None
    revision: str | None
    platform: str | None
    architecture: str | None
    projects: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    token_expires_at: str | None
    organization_id: int
    organization_ids: list[int]
    problem: str
    """Remuda's own: why the runner takes no jobs, as its managers report; empty: at least one takes jobs, or none has
    called lately."""


async def _view(edge: Edge, caller: Caller, runner: Runner) -> RunnerShape:
    """The API response for a runner, with its group and those of its projects that the caller may know of."""
    projects = [await edge.store.projects.load_project(project_id) for project_id in runner.project_ids]
    group = await edge.store.people.load_namespace(runner.group_id) if runner.group_id is not None else None
    managers, now = await edge.store.runners.list_managers(runner.id), edge.clock.now()
    newest = max(managers, key=lambda manager: manager.contacted_at, default=None)
    contacted_at = newest.contacted_at if newest else None
    status = status_of(runner.created_at, contacted_at, now)
    return RunnerShape.of(
        runner,
        **asdict(replace(runner_summary(runner), ip_address=newest.ip_address if newest else None)),
        online=status == "online",
        status=status,
        contacted_at=time_text(contacted_at),
        tag_list=list(runner.tags),
        organization_ids=list(runner.organization_ids),
        access_level="ref_protected" if runner.protected_only else "not_protected",
        version=newest.runner_version if newest else None,
        revision=newest.revision if newest else None,
        platform=newest.platform if newest else None,
        architecture=newest.architecture if newest else None,
        projects=[
            {
                "id": project.id,
                "name": project.name,
                "path": project.path.rpartition("/")[2],
                "path_with_namespace": project.path,
            }
            for project in projects
            if project and caller.level_in(project) is not None
        ],
        groups=[{"id": group.id, "name": group.name, "web_url": f"{edge.settings.url}/groups/{group.path}"}]
        if group and caller.level_in_group(group) is not None
        else [],
        token_expires_at=time_text(runner.token_expires_at),
        problem=view_of(runner, managers, jobs=0, now=now).problem,
    )


class ManagerShape(Shape, kw_only=True):
    system_id: str
    version: str | None
    revision: str | None
    platform: str | None
    architecture: str | None
    executor: str | None
    contacted_at: str | None
    ip_address: str | None
    capacity: int | None
    load: dict[str, Any] | None
    running_jobs: int
    status: str
    problem: str


def _manager_view(manager: RunnerManager, now: float, *, running_jobs: int) -> ManagerShape:
    return ManagerShape.of(
        manager,
        version=manager.runner_version,
        contacted_at=time_text(manager.contacted_at),
        load=_load(manager),
        running_jobs=running_jobs,
        status=status_of(manager.contacted_at, manager.contacted_at, now),
    )


def _load(manager: RunnerManager) -> dict[str, Any] | None:
    """Load that a runner manager reported: running jobs, free slots, share of slots in use; None if not reported."""
    running, free = manager.load_running, manager.load_free
    if running is None or free is None:
        return None
    slots = running + free
    return {"running": running, "free": free, "saturation": round(running / slots, 4) if slots else 1.0}


def filter_of(request: Request, now: float, pools: Sequence[Pool] | None) -> RunnerFilter:
    """The runner filter in the query, with GitLab's old and new parameters; ApiError 400 if not valid. `pools`: only
    runners that serve these pools (None: all). `now`: to decide which runners are online."""
    query = request.query_params
    kind, status = choice_in_query(request, "type", tuple(RunnerType)), query.get("status", "")
    paused = query.get("paused", "").lower()
    if paused not in ("", "true", "false", "1", "0"):
        raise bad_parameter("paused is invalid")
    is_paused = None if not paused else paused in ("true", "1")
    scope = query.get("scope", "")
    if scope in ("shared", "specific"):
        kind = RunnerType.INSTANCE.value if scope == "shared" else RunnerType.PROJECT.value
    elif scope:
        status = scope
    if status in ("active", "paused"):
        is_paused, status = status == "paused", ""
    if status not in ("", *STATUSES):
        raise bad_parameter("status does not have a valid value")
    tag_lists = (query.get("tag_list", ""), *query.getlist("tag_list[]"))
    tags = [tag.strip() for text in tag_lists for tag in text.split(",")]
    return RunnerFilter(
        type=kind,
        paused=is_paused,
        tags=tuple(tag for tag in tags if tag),
        pools=None if pools is None else tuple(pools),
        status=status,
        now=now,
        search=query.get("search", "").strip(),
        version_prefix=query.get("version_prefix", "").strip(),
    )


async def _page(edge: Edge, request: Request, pools: Sequence[Pool] | None) -> Paged[RunnerShape]:
    page, caller = page_of(request), caller_of(request)
    runners, total = await edge.store.runners.list_runners(page, filter_of(request, edge.clock.now(), pools))
    return Paged([await _view(edge, caller, runner) for runner in runners], total, page)


@routes.get("/api/v4/runners", USER.with_scopes("manage_runner"), query=LISTED)
async def list_own(edge: Edge, request: Request, caller: Caller) -> Paged[RunnerShape]:
    """List the runners that the caller may manage; administrators see all runners."""
    return await _page(edge, request, await list_managed_pools(edge, caller))


async def list_managed_pools(edge: Edge, caller: Caller) -> list[Pool] | None:
    """The groups and projects whose runners the caller may manage; None: all runners of the cell."""
    if caller.user.is_admin:
        return None
    pools: list[Pool] = []
    for member in caller.members:
        group = await edge.store.people.load_namespace(member.owner[1]) if member.owner[0] == "group" else None
        if group is not None and member.level >= Level.OWNER:
            inside = await edge.projects.namespaces.inside(group)
            pools += [("group", namespace.id) for namespace in (group, *inside)]
    projects = await list_all_projects(edge.store, ProjectFilter(sight=caller.sight, membership=True))
    pools += [("project", project.id) for project in projects if (caller.level_in(project) or 0) >= Level.MAINTAINER]
    return pools


@routes.get("/api/v4/runners/all", ADMINISTRATOR.with_scopes("manage_runner"), query=LISTED)
async def list_all(edge: Edge, request: Request) -> Paged[RunnerShape]:
    """List all runners."""
    return await _page(edge, request, None)


@routes.get("/api/v4/groups/{id}/runners", in_group(Level.MAINTAINER).with_scopes("manage_runner"), query=LISTED)
async def list_of_group(edge: Edge, request: Request, group: Namespace) -> Paged[RunnerShape]:
    """List the runners that serve all projects of a group."""
    groups: list[Pool] = [("group", number) for number in group.group_ids]
    return await _page(edge, request, [CELL_POOL, ("organization", group.organization_id), *groups])


@routes.get(_OF_PROJECT, in_project(Level.MAINTAINER).with_scopes("manage_runner"), query=LISTED)
async def list_of_project(edge: Edge, request: Request, project: Project) -> Paged[RunnerShape]:
    """List the runners that serve a project."""
    groups: list[Pool] = [("group", number) for number in project.group_ids]
    whole: list[Pool] = [CELL_POOL, ("organization", project.organization_id)]
    return await _page(edge, request, [*whole, *groups, ("project", project.id)])


@routes.get(_ONE, SEES_RUNNER.with_scopes("manage_runner"))
async def show(edge: Edge, caller: Caller, runner: Runner) -> RunnerShape:
    """Show a runner."""
    return await _view(edge, caller, runner)


@routes.put(_ONE, MANAGES_RUNNER)
async def update(edge: Edge, runner: Runner, caller: Caller, change: RunnerChange) -> RunnerShape:
    """Change a runner."""
    await check_organizations(edge, change.organization_ids or [])
    new = await edge.store.runners.change_runner(runner.id, lambda row: apply_change(row, change))
    if new is None:
        raise not_found("Runner")
    return await _view(edge, caller, new)


@routes.delete(_ONE, MANAGES_RUNNER)
async def remove(edge: Edge, runner: Runner) -> None:
    """Remove a runner."""
    await edge.store.runners.remove_runner(runner.id)


@routes.get(f"{_ONE}/managers", SEES_RUNNER.with_scopes("manage_runner"))
async def managers(edge: Edge, runner: Runner) -> list[ManagerShape]:
    """List the managers of a runner: the processes that use its token."""
    now = edge.clock.now()
    jobs = edge.dispatch.explanations.jobs_by_manager(runner.id)
    rows = await edge.store.runners.list_managers(runner.id)
    return [_manager_view(manager, now, running_jobs=jobs[manager.system_id]) for manager in rows]


@routes.get(f"{_ONE}/jobs", MANAGES_RUNNER, query={"status": str})
async def list_jobs(edge: Edge, request: Request, runner: Runner, caller: Caller, page: Page) -> Paged[JobShape]:
    """List the jobs that a runner got, only of projects that the caller may read."""
    status = choice_in_query(request, "status", tuple(JobState))
    states = [status, JobState.LEASED.value] if status == JobState.RUNNING else [status] if status else []
    selection = JobFilter(runner_id=runner.id, states=states, with_retried=True)
    jobs, total = await edge.store.jobs.list_jobs(page, selection)
    visible = []
    for job in jobs:
        project = await edge.store.projects.load_project(job.project_id)
        if project is not None and (caller.level_in(project) or 0) >= Level.REPORTER:
            visible.append(job)
    return Paged(await describe(edge, visible), total, page)


class Link(msgspec.Struct, kw_only=True):
    runner_id: int


@routes.post(_OF_PROJECT, in_project(Level.MAINTAINER).with_scopes("manage_runner"))
async def link(edge: Edge, project: Project, caller: Caller, params: Link) -> RunnerShape:
    """Link a project runner to another project of its organization."""
    runner = await edge.store.runners.load_runner(RunnerId(params.runner_id))
    if runner is None or runner.organization_id != project.organization_id:
        raise not_found("Runner")
    if await runner_level(edge, caller, runner) < Level.MAINTAINER:
        raise forbidden("No access granted")

    def add_project(row: Runner) -> Runner:
        if row.type is not RunnerType.PROJECT:
            raise forbidden("only project runners can be linked to projects")
        if row.locked:
            raise forbidden("Runner is locked")
        if project.id in row.project_ids:
            raise bad_field("runner", "has already been taken")
        return replace(row, project_ids=(*row.project_ids, project.id))

    new = await edge.store.runners.change_runner(runner.id, add_project)
    if new is None:
        raise not_found("Runner")
    return await _view(edge, caller, new)


@routes.delete(f"{_OF_PROJECT}/{{runner_id}}", in_project(Level.MAINTAINER).with_scopes("manage_runner"))
async def unlink(edge: Edge, project: Project, runner: Runner) -> None:
    """Unlink a runner from a project."""

    def remove_project(row: Runner) -> Runner:
        if row.type is not RunnerType.PROJECT or project.id not in row.project_ids:
            raise not_found("Runner")
        if len(row.project_ids) == 1:
            raise forbidden("Only one project associated with the runner. Please remove the runner instead")
        return replace(row, project_ids=tuple(project_id for project_id in row.project_ids if project_id != project.id))

    await edge.store.runners.change_runner(runner.id, remove_project)
